// CHECK_EQUAL: compares two values; if they differ, prints both and exits with 1. CHECK_BELOW: the
// same, if the first is not less than the second.
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

#define CHECK_BELOW(actual, bound)                                                    \
  do {                                                                                \
    const auto& actual_value = (actual);                                              \
    const auto& bound_value = (bound);                                                \
    if (!(actual_value < bound_value)) {                                              \
      std::cerr << __FILE__ << ':' << __LINE__ << ": " #actual " is " << actual_value \
                << ", not below " << bound_value << '\n';                             \
      std::exit(1);                                                                   \
    }                                                                                 \
  } while (false)
