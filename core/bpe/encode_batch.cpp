#include <algorithm>
#include <cstring>
#include <vector>

#include "../common/pool.hpp"
#include "encode.hpp"
#include "encode_workspace.hpp"

namespace tilth::bpe {
namespace {

// A few milliseconds of work: the overhead of a job is small, and the load is balanced.
constexpr std::size_t job_bytes = std::size_t{1} << 19;

}  // namespace

std::vector<std::string_view> Encoder::cut_at_blanks(std::string_view text, bool allow_special,
                                                     std::size_t slice_bytes) const {
  std::vector<std::string_view> slices;
  const bool may_cut_any = may_cut(allow_special);
  std::size_t start = 0;
  while (may_cut_any && text.size() - start > slice_bytes) {
    std::size_t end = text.find(' ', start + slice_bytes);  // memchr is vectorized
    while (end != text.npos && !may_cut_at(text, end, allow_special)) end = text.find(' ', end + 1);
    end = std::min(end, text.size());
    slices.push_back(text.substr(start, end - start));
    start = end;
  }
  if (start < text.size()) slices.push_back(text.substr(start));
  return slices;
}

Encoder::Batch Encoder::encode_batch(std::span<const std::string_view> texts, bool allow_special,
                                     std::size_t num_threads, const InterruptCheck& check) const {
  // A slice is a text or a part of one; a job is a range of slices.
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
  std::size_t bytes_in_job = job_bytes, num_bytes = 0;
  for (std::size_t row = 0; row < texts.size(); ++row) {
    for (const std::string_view bytes : cut_at_blanks(texts[row], allow_special, job_bytes)) {
      if (bytes_in_job >= job_bytes) {
        jobs.push_back({slices.size(), slices.size()});
        bytes_in_job = 0;
      }
      slices.push_back({bytes, row});
      jobs.back().last_slice = slices.size();
      bytes_in_job += bytes.size();
      num_bytes += bytes.size();
    }
  }
  const std::size_t num_workers = num_workers_for(jobs.size(), num_threads);

  // Each worker appends to its buffer. A single worker runs the jobs in order, and its buffer is
  // the result.
  std::vector<TokenIds> workers_ids(num_workers);
  run_jobs(jobs.size(), num_workers, check, [&](std::size_t job_index, Worker& worker) {
    Job& job = jobs[job_index];
    TokenIds& ids = workers_ids[worker.index()];
    job.worker = worker.index();
    job.first_id = ids.size();
    const Checkout workspace(*this);
    prepare_cache(*workspace, num_bytes / num_workers, num_workers);
    for (std::size_t i = job.first_slice; i < job.last_slice; ++i) {
      Slice& slice = slices[i];
      const std::size_t before = ids.size();
      try {
        encode_with(*workspace, slice.bytes, allow_special, ids, [&] { worker.check(); });
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
  run_jobs(jobs.size(), num_workers, check, [&](std::size_t job_index, Worker&) {
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
