// team: threads that stay, for work that comes in many short phases.
//
//     Team team(2);  // the caller and one more thread
//     team.run(100, [&](std::size_t job, std::size_t worker) { y[job] = f(job); });
//
// Promise: run returns when every job has been done once. The caller works too, and whoever is free
// takes the next jobs, a share of what is left: a thread that the system has put aside delays
// nothing but the jobs it holds, and in a forked child, where the threads are gone, the caller does
// everything. `worker` is below num_threads(), and no two jobs run with the same one at once. Jobs
// must not throw.
//
// A phase costs about a microsecond. Between phases the threads look out for the next one for a
// fraction of a millisecond, then they sleep.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace tilth::decoder {

class Team {
 public:
  // The caller and up to num_threads - 1 others; fewer if the system gives no more. Throws
  // std::invalid_argument unless num_threads is from 1 to max_threads.
  explicit Team(std::size_t num_threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  std::size_t num_threads() const { return threads_.size() + 1; }

  // One caller at a time. More jobs than a phase can have make several phases.
  template <typename Work>
  void run(std::size_t num_jobs, const Work& work) {
    for (std::size_t first = 0; first < num_jobs; first += jobs_per_phase) {
      const auto work_on = [&](std::size_t job, std::size_t worker) { work(first + job, worker); };
      run_phase(std::min(jobs_per_phase, num_jobs - first), &work_on,
                [](const void* context, std::size_t job, std::size_t worker) {
                  (*static_cast<const decltype(work_on)*>(context))(job, worker);
                });
    }
  }

  static constexpr std::size_t jobs_per_phase = 0xFFFF;

 private:
  using Function = void (*)(const void*, std::size_t, std::size_t);

  void run_phase(std::size_t num_jobs, const void* context, Function function);
  void serve(std::size_t worker);
  void work(std::size_t worker);
  bool has_jobs() const;
  void wake();

  // Number of the phase, of its jobs, and of the next job, in 32, 16 and 16 bits: one word, so that
  // nobody takes a job of a phase that is over.
  std::atomic<std::uint64_t> tickets_ = 0;
  std::atomic<std::size_t> num_done_ = 0;
  // Of the phase. Written while no job is out, and read by those who hold one.
  const void* context_ = nullptr;
  Function function_ = nullptr;

  std::atomic<bool> stopping_ = false;
  std::atomic<bool> has_sleepers_ = false;
  // What sleepers wait for. No condition variable: in a forked child it would wait for its waiters,
  // who are gone.
  std::atomic<std::uint32_t> num_calls_ = 0;
  pid_t process_;
  std::vector<std::thread> threads_;
};

}  // namespace tilth::decoder
