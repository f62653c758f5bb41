// run_jobs: runs independent jobs on several threads, for throughput. Phases of microseconds use
// decoder/team.hpp.
//
//     run_jobs(jobs.size(), num_workers, check, [&](std::size_t job, Worker& worker) {
//       results[worker.index()].append(work_on(jobs[job]));
//     });
//
// Contract:
// - Jobs start in order, and none starts after a failure. So the exception that propagates is that
//   of the first failing job, for any number of threads.
// - The caller is worker 0. It polls `check` between its jobs and while it waits. An exception of
//   `check` propagates before that of any job.
// - If the system provides fewer threads, the call continues with those.
//
// Complexity: threads are started and joined in every call, which takes 0.1 ms and leaves no thread
// behind for a fork to lose.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>

#include "interrupt.hpp"
#include "limits.hpp"

namespace tilth {

class Jobs;

// The thread that runs a job.
class Worker {
 public:
  Worker(Jobs& jobs, std::size_t index) : jobs_(jobs), index_(index) {}
  std::size_t index() const { return index_; }  // below the number of workers

  // For long jobs: throws if the call was interrupted. Polls `check` on the calling thread.
  void check();
  // Whether another job has failed; then this one may return early.
  bool is_stopped() const;

 private:
  Jobs& jobs_;
  std::size_t index_;
};

// The number of threads that have a job.
inline std::size_t num_workers_for(std::size_t num_jobs, std::size_t num_threads) {
  return std::clamp<std::size_t>(std::min(num_jobs, num_threads), 1, max_threads);
}

void run_jobs(std::size_t num_jobs, std::size_t num_workers, const InterruptCheck& check,
              const std::function<void(std::size_t job, Worker& worker)>& work);

}  // namespace tilth
