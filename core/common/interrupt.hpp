// Interruption: polls a callback that may stop long work.
//
//     Interruption interruption([&] { if (ctrl_c_was_pressed()) throw KeyboardInterrupt(); });
//     for (...) { work(); interruption.poll(); }
//
// Contract: poll() calls the function on the polling thread, at most once every 50 ms. Exceptions
// of the function propagate to the caller. poll() takes 25 ns.
#pragma once

#include <chrono>
#include <functional>
#include <utility>

namespace tilth {

using InterruptCheck = std::function<void()>;

class Interruption {
 public:
  explicit Interruption(InterruptCheck check) : check_(std::move(check)) {}
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  static constexpr auto interval = std::chrono::milliseconds(50);

  void poll() {
    if (!check_) return;
    const auto now = Clock::now();
    if (now - last_ < interval) return;
    last_ = now;
    check_();
  }

 private:
  using Clock = std::chrono::steady_clock;
  InterruptCheck check_;
  Clock::time_point last_ = Clock::now();
};

}  // namespace tilth
