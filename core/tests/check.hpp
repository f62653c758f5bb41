// check: the whole test framework of the core. A failed check prints both sides and ends the run.
#pragma once

#include <cstdlib>
#include <iostream>

#define CHECK_EQUAL(actual, expected)                                                 \
  do {                                                                                \
    const auto& actual_value = (actual);                                              \
    const auto& expected_value = (expected);                                          \
    if (!(actual_value == expected_value)) {                                          \
      std::cerr << __FILE__ << ':' << __LINE__ << ": " #actual " is " << actual_value \
                << ", expected " << expected_value << '\n';                           \
      std::exit(1);                                                                   \
    }                                                                                 \
  } while (false)
