// Tests of core/common: checked arithmetic, Array, run_jobs, Interruption.

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../common/array.hpp"
#include "../common/checked.hpp"
#include "../common/pool.hpp"
#include "check.hpp"

using namespace tilth;

namespace {

constexpr std::size_t most = std::numeric_limits<std::size_t>::max();

bool throws_bad_alloc(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    return true;
  }
  return false;
}

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "none";
}

void check_arithmetic() {
  CHECK_EQUAL(checked_multiply(3, 5), 15u);
  CHECK_EQUAL(checked_multiply(3, 5, 7u, 0u), 0u);
  CHECK_EQUAL(checked_multiply(std::size_t{1} << 31, std::size_t{1} << 31), std::size_t{1} << 62);
  CHECK_EQUAL(checked_add(max_bytes - 1, 1), max_bytes);
  CHECK_EQUAL(checked_round_up(65, 64), 128u);
  for (const auto& [a, b] : {std::pair<std::size_t, std::size_t>{most, 2},
                             {std::size_t{1} << 61, 8},
                             {std::size_t{1} << 32, std::size_t{1} << 32},
                             {max_bytes, 2}}) {
    CHECK_EQUAL(throws_bad_alloc([&, a = a, b = b] { checked_multiply(a, b); }), true);
    CHECK_EQUAL(throws_bad_alloc([&, a = a, b = b] { checked_multiply(2, a, b); }), true);
  }
  CHECK_EQUAL(throws_bad_alloc([] { checked_add(most, 1); }), true);
  CHECK_EQUAL(throws_bad_alloc([] { checked_add(max_bytes, 1); }), true);
  CHECK_EQUAL(throws_bad_alloc([] { checked_round_up(most - 3, 64); }), true);
}

void check_array() {
  Array<std::uint32_t> grown;
  for (std::uint32_t i = 0; i < 100000; ++i) grown.append(i);
  CHECK_EQUAL(grown.size(), 100000u);
  for (std::uint32_t i = 0; i < 100000; ++i) CHECK_EQUAL(grown[i], i);
  grown.shrink();
  CHECK_EQUAL(grown.capacity(), 100000u);
  CHECK_EQUAL(throws_bad_alloc([&] { grown.reserve_more(most); }), true);
  CHECK_EQUAL(throws_bad_alloc([&] { grown.reserve_more(most / 4 - 100000); }), true);
  CHECK_EQUAL(grown.size(), 100000u);
  CHECK_EQUAL(grown[99999], 99999u);

  for (const std::size_t size : {0u, 1u, 15u, 16u, 17u, 100000u, 524287u, 524288u, 3000000u}) {
    auto zeros = Array<float>::zeros(size);
    CHECK_EQUAL(zeros.size(), size);
    const auto place = reinterpret_cast<std::uintptr_t>(zeros.data());
    CHECK_EQUAL(place % (size * 4 < large_page_bytes ? cache_line_bytes : large_page_bytes), 0u);
    for (const float each : zeros) CHECK_EQUAL(each, 0.0f);
    for (std::size_t i = 0; i < size; ++i) zeros[i] = static_cast<float>(i);
    // Aligned zeros can grow too.
    for (int i = 0; i < 100; ++i) zeros.append(-1.0f);
    zeros.shrink();
    CHECK_EQUAL(zeros.size(), size + 100);
    for (std::size_t i = 0; i < size; ++i) CHECK_EQUAL(zeros[i], static_cast<float>(i));
    CHECK_EQUAL(zeros[size + 99], -1.0f);
    const Array<float> moved = std::move(zeros);
    CHECK_EQUAL(moved.size(), size + 100);
  }
  for (const std::size_t size : {most, most / 4, most / 4 + 1, most / 8, std::size_t{1} << 62}) {
    CHECK_EQUAL(throws_bad_alloc([&] { Array<float>::zeros(size); }), true);
  }
}

void check_jobs() {
  CHECK_EQUAL(num_workers_for(most, most), max_threads);
  for (const std::size_t num_threads : {0u, 1u, 2u, 8u}) {
    for (const std::size_t num_jobs : {0u, 1u, 3u, 1000u}) {
      const std::size_t num_workers = num_workers_for(num_jobs, num_threads);
      CHECK_EQUAL(num_workers >= 1 && num_workers <= max_threads, true);
      std::vector<int> done(num_jobs);
      run_jobs(num_jobs, num_workers, {}, [&](std::size_t job, Worker& worker) {
        CHECK_EQUAL(worker.index() < num_workers, true);
        ++done[job];
      });
      for (const int times : done) CHECK_EQUAL(times, 1);
    }
    // The failure of the first job propagates.
    for (int round = 0; round < 20; ++round) {
      CHECK_EQUAL(message_of([&] {
                    run_jobs(500, num_workers_for(500, num_threads), {},
                             [](std::size_t job, Worker&) {
                               if (job % 50 == 17) throw std::out_of_range(std::to_string(job));
                             });
                  }),
                  "17");
    }
  }
}

void check_interruption() {
  const auto caller = std::this_thread::get_id();
  const InterruptCheck stop = [&] {
    CHECK_EQUAL(std::this_thread::get_id() == caller, true);
    throw std::out_of_range("stop");
  };
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  for (const std::size_t num_workers : {1u, 3u}) {
    // Between jobs; in an endless job; and while the caller waits for other workers.
    CHECK_EQUAL(message_of([&] {
                  run_jobs(most, num_workers, stop, [&](std::size_t, Worker&) { pause(); });
                }),
                "stop");
    CHECK_EQUAL(message_of([&] {
                  run_jobs(num_workers, num_workers, stop, [&](std::size_t, Worker& worker) {
                    for (;; pause()) worker.check();
                  });
                }),
                "stop");
    CHECK_EQUAL(message_of([&] {
                  run_jobs(3, num_workers, stop, [&](std::size_t, Worker& worker) {
                    for (int i = 0; i < 300 || worker.index() > 0; ++i, pause()) {
                      if (worker.index() > 0) worker.check();
                    }
                  });
                }),
                "stop");
    // It has priority over the failure of a job.
    CHECK_EQUAL(message_of([&] {
                  run_jobs(1, num_workers, stop, [&](std::size_t, Worker& worker) {
                    try {
                      for (;; pause()) worker.check();
                    } catch (...) {
                      throw std::out_of_range("a job");
                    }
                  });
                }),
                "stop");
  }
  // A job can see the failure of another and return early.
  CHECK_EQUAL(message_of([&] {
                run_jobs(2, 2, {}, [&](std::size_t job, Worker& worker) {
                  if (job == 1) throw std::out_of_range("failed");
                  while (!worker.is_stopped()) pause();
                });
              }),
              "failed");
}

}  // namespace

int main() {
  check_arithmetic();
  check_array();
  check_jobs();
  check_interruption();
  return 0;
}
