// interrupt: the one way to stop long work from outside.
//
//     Interruption interruption([&] { if (ctrl_c_was_pressed()) throw KeyboardInterrupt(); });
//     for (...) { work(); interruption.poll(); }
//
// Promise: the function is called on the thread that polls, about twenty times a second however
// often poll is called (25 ns each). What it throws ends the work and comes out of the call.
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
