// pool: many jobs on several threads, for throughput. (The decoder's phases of microseconds have a
// team of their own, decoder/team.hpp.)
//
//     run_jobs(jobs.size(), num_workers, check, [&](std::size_t job, Worker& worker) {
//       results[worker.index()].append(work_on(jobs[job]));
//     });
//
// Promise: jobs begin in order, and after a failure no more begin, so the first failing job, whose
// exception comes out, is the same for any number of threads. The caller is worker 0; it polls
// `check` between its jobs and while it waits for others, and what that throws comes out before
// any failure. Goes on with fewer threads where the system gives no more. Threads are started for a
// call and joined at its end: 0.1 ms, and nothing that a fork could leave behind.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>

#include "interrupt.hpp"
#include "limits.hpp"

namespace tilth {

class Jobs;

// What a job knows of the thread that it runs on.
class Worker {
 public:
  Worker(Jobs& jobs, std::size_t index) : jobs_(jobs), index_(index) {}
  std::size_t index() const { return index_; }  // below the number of workers

  // For long jobs: throws if the call was interrupted. Polls, on the calling thread.
  void check();
  // Whether another job has failed, so that this one may end early.
  bool is_stopped() const;

 private:
  Jobs& jobs_;
  std::size_t index_;
};

// As many as there are jobs for.
inline std::size_t num_workers_for(std::size_t num_jobs, std::size_t num_threads) {
  return std::clamp<std::size_t>(std::min(num_jobs, num_threads), 1, max_threads);
}

void run_jobs(std::size_t num_jobs, std::size_t num_workers, const InterruptCheck& check,
              const std::function<void(std::size_t job, Worker& worker)>& work);

}  // namespace tilth
