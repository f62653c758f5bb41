#include "pool.hpp"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

namespace tilth {

// The shared state of one call.
class Jobs {
 public:
  Jobs(std::size_t num_jobs, const InterruptCheck& check,
       const std::function<void(std::size_t, Worker&)>& work)
      : num_jobs_(num_jobs), work_(work), interruption_(check) {}

  void run(std::size_t num_workers) {
    std::vector<std::thread> threads;
    threads.reserve(num_workers - 1);
    try {
      for (std::size_t index = 1; index < num_workers; ++index) {
        ++num_running_;
        threads.emplace_back([this, index] { run_apart(index); });
      }
    } catch (const std::system_error&) {  // no more threads available
      --num_running_;
    } catch (const std::bad_alloc&) {
      --num_running_;
    }
    run_worker(0);
    {
      std::unique_lock lock(mutex_);
      while (num_running_ != 0) {
        finished_.wait_for(lock, Interruption::interval);
        lock.unlock();
        poll();
        lock.lock();
      }
    }
    for (std::thread& thread : threads) thread.join();
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

  // Call it on the calling thread only.
  void poll() noexcept {
    try {
      if (!is_interrupted_) interruption_.poll();
    } catch (...) {
      is_interrupted_ = true;
      fail(0);
    }
  }
  bool is_interrupted() const { return is_interrupted_; }
  bool is_stopped() const { return is_stopped_; }

 private:
  void run_worker(std::size_t index) noexcept {
    Worker worker(*this, index);
    while (!is_stopped_) {
      const std::size_t job = next_job_++;
      if (job >= num_jobs_) return;
      try {
        work_(job, worker);
      } catch (...) {
        fail(job + 1);
      }
      if (index == 0) poll();
    }
  }

  // The body of every thread but the calling one.
  void run_apart(std::size_t index) noexcept {
    run_worker(index);
    const std::lock_guard lock(mutex_);
    --num_running_;
    finished_.notify_one();
  }

  // Store the current exception, unless one of an earlier job is stored.
  void fail(std::size_t order) noexcept {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    if (failure_ != nullptr && order >= failure_order_) return;
    failure_ = std::current_exception();
    failure_order_ = order;
  }

  const std::size_t num_jobs_;
  const std::function<void(std::size_t, Worker&)>& work_;
  Interruption interruption_;
  std::atomic<std::size_t> next_job_ = 0;
  std::atomic<bool> is_stopped_ = false, is_interrupted_ = false;
  std::atomic<std::size_t> num_running_ = 0;
  std::mutex mutex_;  // guards the rest
  std::condition_variable finished_;
  std::exception_ptr failure_;
  std::size_t failure_order_ = 0;
};

void Worker::check() {
  if (index_ == 0) jobs_.poll();
  if (jobs_.is_interrupted()) throw std::runtime_error("interrupted");
}

bool Worker::is_stopped() const { return jobs_.is_stopped(); }

void run_jobs(std::size_t num_jobs, std::size_t num_workers, const InterruptCheck& check,
              const std::function<void(std::size_t job, Worker& worker)>& work) {
  Jobs(num_jobs, check, work).run(num_workers);
}

}  // namespace tilth
