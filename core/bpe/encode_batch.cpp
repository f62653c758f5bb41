#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "characters.hpp"
#include "encode.hpp"
#include "encode_workspace.hpp"

namespace tilth::bpe {
namespace {

// Some milliseconds of work: enough to make taking a job cheap, little enough to share evenly.
constexpr std::size_t job_bytes = std::size_t{1} << 19;

// Whether text[place] is a blank behind a character that is no space. A piece ends there whatever
// surrounds it, in gpt2 as in cl100k, and nothing before the place depends on what follows it.
bool is_safe_cut(std::string_view text, std::size_t place) {
  if (place == 0 || text[place] != ' ') return false;
  std::size_t before = place - 1;
  while (before > 0 && place - before < 4 && (text[before] & 0xC0) == 0x80) --before;
  const Character character = decode_character(text, before);
  return character.kind != CharacterClass::space && before + character.length == place;
}

// Joins the threads that were started, however the scope is left.
class Threads {
 public:
  explicit Threads(std::size_t most) { threads_.reserve(most); }
  ~Threads() {
    for (std::thread& thread : threads_) thread.join();
  }
  // Start up to `count`; fewer if the system gives no more.
  template <typename Work>
  void start(std::size_t count, const Work& work) {
    try {
      for (std::size_t i = 0; i < count; ++i) threads_.emplace_back(work, i);
    } catch (const std::system_error&) {
    } catch (const std::bad_alloc&) {
    }
  }

 private:
  std::vector<std::thread> threads_;
};

// Does work(job, worker) for each job on up to num_workers threads, of which the caller is the
// last. Jobs are begun in order, and after a failure no more are begun: so the first failing job,
// whose exception comes out, is the same for any number of threads.
template <typename Work>
void run_jobs(std::size_t num_jobs, std::size_t num_workers, const InterruptCheck& check,
              const Work& work) {
  std::atomic<std::size_t> next_job = 0;
  std::atomic<bool> failed = false;
  std::mutex failure_mutex;
  std::exception_ptr failure;
  std::size_t failed_job = num_jobs;
  const auto fail = [&](std::size_t job) {
    const std::lock_guard lock(failure_mutex);
    failed = true;
    if (failure == nullptr || job < failed_job) {
      failure = std::current_exception();
      failed_job = job;
    }
  };
  const auto run = [&](std::size_t worker, const InterruptCheck* worker_check) {
    while (!failed) {
      const std::size_t job = next_job++;
      if (job >= num_jobs) return;
      try {
        work(job, worker);
        if (worker_check != nullptr && *worker_check) (*worker_check)();
      } catch (...) {
        fail(job);
      }
    }
  };
  {
    Threads threads(num_workers);
    threads.start(num_workers - 1, [&](std::size_t worker) { run(worker, nullptr); });
    run(num_workers - 1, &check);
  }
  if (failure != nullptr) std::rethrow_exception(failure);
}

}  // namespace

std::vector<std::string_view> Encoder::cut_at_blanks(std::string_view text, bool allow_special,
                                                     std::size_t slice_bytes) const {
  std::vector<std::string_view> slices;
  const bool may_cut =
      pattern_ != Pattern::none && !(allow_special && special_tokens_.may_span_blank());
  std::size_t start = 0;
  while (may_cut && text.size() - start > slice_bytes) {
    std::size_t end = start + slice_bytes;
    while (end < text.size() && !is_safe_cut(text, end)) ++end;
    slices.push_back(text.substr(start, end - start));
    start = end;
  }
  if (start < text.size()) slices.push_back(text.substr(start));
  return slices;
}

Encoder::Batch Encoder::encode_batch(std::span<const std::string_view> texts, bool allow_special,
                                     std::size_t num_threads, const InterruptCheck& check) const {
  // A slice is a text or part of one; a job is a row of slices.
  struct Slice {
    std::string_view bytes;
    std::size_t row;
    std::size_t num_ids = 0;
  };
  struct Job {
    std::size_t first_slice, last_slice;
    std::size_t worker = 0, first_id = 0, num_ids = 0;
  };
  std::vector<Slice> slices;
  std::vector<Job> jobs;
  std::size_t bytes_in_job = job_bytes;
  for (std::size_t row = 0; row < texts.size(); ++row) {
    for (const std::string_view bytes : cut_at_blanks(texts[row], allow_special, job_bytes)) {
      if (bytes_in_job >= job_bytes) {
        jobs.push_back({slices.size(), slices.size()});
        bytes_in_job = 0;
      }
      slices.push_back({bytes, row});
      jobs.back().last_slice = slices.size();
      bytes_in_job += bytes.size();
    }
  }
  if (num_threads == 0) num_threads = std::max(1u, std::thread::hardware_concurrency());
  const std::size_t num_workers = std::max<std::size_t>(1, std::min(num_threads, jobs.size()));

  // Each worker appends to a buffer of its own. A single one does the jobs in order, and its buffer
  // is the answer.
  std::vector<TokenIds> workers_ids(num_workers);
  run_jobs(jobs.size(), num_workers, check, [&](std::size_t job_index, std::size_t worker) {
    Job& job = jobs[job_index];
    TokenIds& ids = workers_ids[worker];
    job.worker = worker;
    job.first_id = ids.size();
    const Checkout workspace(*this);
    for (std::size_t i = job.first_slice; i < job.last_slice; ++i) {
      Slice& slice = slices[i];
      const std::size_t before = ids.size();
      try {
        encode_with(*workspace, slice.bytes, allow_special, ids, {});
      } catch (const MissingByte& missing) {
        const auto start = static_cast<std::size_t>(slice.bytes.data() - texts[slice.row].data());
        throw MissingByte(missing.byte(), start + missing.offset());
      }
      slice.num_ids = ids.size() - before;
    }
    job.num_ids = ids.size() - job.first_id;
  });

  Batch batch;
  batch.row_offsets.reserve_more(texts.size() + 1);
  std::uint64_t offset = 0;
  std::size_t next_slice = 0;
  for (std::size_t row = 0; row < texts.size(); ++row) {
    batch.row_offsets.append(offset);
    for (; next_slice < slices.size() && slices[next_slice].row == row; ++next_slice) {
      offset += slices[next_slice].num_ids;
    }
  }
  batch.row_offsets.append(offset);

  if (num_workers == 1) {
    batch.ids = std::move(workers_ids[0]);
    return batch;
  }
  batch.ids.reserve_more(static_cast<std::size_t>(offset));
  std::vector<std::size_t> first_ids;
  for (std::size_t place = 0; const Job& job : jobs) {
    first_ids.push_back(place);
    place += job.num_ids;
  }
  run_jobs(jobs.size(), num_workers, check, [&](std::size_t job_index, std::size_t) {
    const Job& job = jobs[job_index];
    if (job.num_ids == 0) return;
    std::memcpy(batch.ids.data() + first_ids[job_index],
                workers_ids[job.worker].data() + job.first_id, job.num_ids * sizeof(std::uint32_t));
  });
  batch.ids.set_size(static_cast<std::size_t>(offset));
  return batch;
}

TokenIds Encoder::encode_parallel(std::string_view text, bool allow_special,
                                  std::size_t num_threads, const InterruptCheck& check) const {
  return encode_batch({&text, 1}, allow_special, num_threads, check).ids;
}

}  // namespace tilth::bpe
