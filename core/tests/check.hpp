// CHECK_EQUAL: compares two values; if they differ, prints both and exits with 1.
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
