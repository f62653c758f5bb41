// Team: persistent threads for many short phases of jobs.
//
//     Team team(2);  // the caller and one more thread
//     team.run(100, [&](std::size_t job, std::size_t worker) { y[job] = f(job); });
//
// Contract:
// - run returns when every job has been done once. Jobs must not throw.
// - The caller works too, and every free thread takes a share of the remaining jobs. So a suspended
//   thread delays only the jobs that it holds; in a forked child, which has no other threads, the
//   caller does all jobs.
// - `worker` is below num_threads(), and no two concurrent jobs have the same worker.
//
// Complexity: a phase takes about 1 us. Between phases the threads spin for about 0.2 ms, then
// sleep.
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
  // Start num_threads - 1 threads, or fewer if the system provides no more. Throws
  // std::invalid_argument unless num_threads is in [1, max_threads].
  explicit Team(std::size_t num_threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  std::size_t num_threads() const { return threads_.size() + 1; }

  // One caller at a time. More than jobs_per_phase jobs are split into several phases.
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

  // The phase, its number of jobs and its next job, in 32, 16 and 16 bits of one word: no thread
  // can take a job of an earlier phase.
  std::atomic<std::uint64_t> tickets_ = 0;
  std::atomic<std::size_t> num_done_ = 0;
  // Of the current phase. Written while no job is running, read by running jobs.
  const void* context_ = nullptr;
  Function function_ = nullptr;

  std::atomic<bool> stopping_ = false;
  std::atomic<bool> has_sleepers_ = false;
  // Sleeping threads wait for it to change. Not a condition variable: its destructor would wait in
  // a forked child for threads that do not exist there.
  std::atomic<std::uint32_t> num_calls_ = 0;
  pid_t process_;
  std::vector<std::thread> threads_;
};

}  // namespace tilth::decoder
