// Helpers shared by the bindings of all folders. No other file of the core includes Python headers.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "array.hpp"
#include "interrupt.hpp"
#include "limits.hpp"

namespace tilth::python {

namespace nb = nanobind;

// Throw nb::python_error if a signal such as Ctrl-C is pending. Call it without the GIL.
inline void check_signals() {
  const nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

// Convert a Python int to a size in [least, most]; raise ValueError outside. nanobind's conversion
// would raise a TypeError that lists every signature.
inline std::size_t size_of(const char* name, const nb::int_& number, std::size_t most,
                           std::size_t least = 1) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow != 0 || value < 0 || std::cmp_less(value, least) || std::cmp_greater(value, most)) {
    // Without the number, which may have too many digits to print.
    const std::string problem = overflow > 0 || value > 0 ? "too large" : "too small";
    throw nb::value_error((std::string(name) + " is " + problem + "; give " +
                           std::to_string(least) + " to " + std::to_string(most))
                              .c_str());
  }
  return static_cast<std::size_t>(value);
}

inline std::size_t threads_of(const nb::int_& number) {
  return size_of("threads", number, max_threads);
}

// Move an array into a NumPy array, without a copy.
template <typename Numpy, typename T>
Numpy numpy_of(Array<T> array, std::initializer_list<std::size_t> shape) {
  auto owned = std::make_unique<Array<T>>(std::move(array));
  T* data = owned->data();
  const nb::capsule owner(owned.get(),
                          [](void* memory) noexcept { delete static_cast<Array<T>*>(memory); });
  static_cast<void>(owned.release());
  return Numpy(data, shape, owner);
}

// Raise ValueError on a second call while the first is running: from another thread, as the first
// has released the GIL, or from a callback of the first.
class Busy {
 public:
  Busy(std::atomic<bool>& is_busy, const char* problem) : is_busy_(is_busy) {
    if (is_busy_.exchange(true)) throw nb::value_error(problem);
  }
  ~Busy() { is_busy_ = false; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  std::atomic<bool>& is_busy_;
};

}  // namespace tilth::python
