#include "count.hpp"

#include <algorithm>
#include <atomic>
#include <deque>
#include <optional>

#include "../common/pool.hpp"
#include "corpus_text.hpp"
#include "count_table.hpp"
#include "cut.hpp"
#include "document.hpp"

namespace tilth::bpe {
namespace {

// A read of this size fits in the L2 cache until it is counted.
constexpr std::size_t read_bytes = std::size_t{256} << 10;

}  // namespace

class CountingEngine {
 public:
  explicit CountingEngine(CountOptions options)
      : options_(std::move(options)), cutter_(options_.special_tokens, options_.pattern) {
    options_.chunk_bytes = std::max<std::size_t>(1, options_.chunk_bytes);
    workspaces_.emplace_back();
  }

  // A job is a chunk of a document, or a whole stream, which has no random access.
  void run(const std::vector<Document>& documents) {
    std::vector<std::size_t> first_jobs;
    std::size_t num_jobs = 0;
    std::uint64_t total_bytes = 0;
    for (const Document& document : documents) {
      first_jobs.push_back(num_jobs);
      num_jobs += document.is_stream
                      ? 1
                      : static_cast<std::size_t>(document.size / options_.chunk_bytes +
                                                 (document.size % options_.chunk_bytes != 0));
      total_bytes += document.is_stream ? 0 : document.size;
    }
    const bool has_stream = std::any_of(documents.begin(), documents.end(),
                                        [](const Document& each) { return each.is_stream; });
    done_bytes_ = 0;
    InterruptCheck check;
    if (options_.progress) {
      check = [&] { options_.progress({done_bytes_, has_stream ? 0 : total_bytes}); };
    }
    const std::size_t num_workers = num_workers_for(num_jobs, options_.num_threads);
    while (workspaces_.size() < num_workers) workspaces_.emplace_back();
    run_jobs(num_jobs, num_workers, check, [&](std::size_t job, Worker& worker) {
      const auto after = std::upper_bound(first_jobs.begin(), first_jobs.end(), job);
      const auto index = static_cast<std::size_t>(after - first_jobs.begin()) - 1;
      count_chunk(documents[index], job - first_jobs[index], worker);
      workspaces_[worker.index()].table.flush();
    });
    for (Workspace& workspace : workspaces_) workspace.reader.reset();
  }

  PieceCounts finish() {
    PieceTable& all = workspaces_.front().table;
    for (; workspaces_.size() > 1; workspaces_.pop_back()) {
      all.add_all(std::move(workspaces_.back().table));
    }
    PieceCounts counts;
    std::size_t num_bytes = 0;
    all.visit([&](std::string_view piece, std::uint64_t) { num_bytes += piece.size(); });
    counts.reserve(all.size(), num_bytes);
    all.visit([&](std::string_view piece, std::uint64_t count) { counts.add(piece, count); });
    workspaces_.clear();
    workspaces_.emplace_back();
    return counts;
  }

 private:
  // The memory of one thread.
  struct Workspace {
    PieceTable table;
    CorpusText text;  // read but not yet counted
    std::vector<char> window;
    std::optional<DocumentReader> reader;
  };

  // Count from the first safe cut in a chunk to the first safe cut in a later one. A chunk without
  // a safe cut belongs to the job of the chunk before it.
  void count_chunk(const Document& document, std::uint64_t chunk, Worker& worker) {
    Workspace& workspace = workspaces_[worker.index()];
    if (!workspace.reader) {
      workspace.reader.emplace([this] {
        if (options_.progress) options_.progress({done_bytes_, 0});
      });
    }
    DocumentReader& reader = *workspace.reader;
    const std::uint64_t chunk_bytes = options_.chunk_bytes;
    const auto cut_of = [&](std::uint64_t i) -> std::uint64_t {
      if (i == 0) return 0;
      return cutter_.find_cut(document, i * chunk_bytes, (i + 1) * chunk_bytes, reader,
                              workspace.window);
    };
    const std::uint64_t begin = cut_of(chunk);
    if (begin == Cutter::no_cut) return;
    std::uint64_t end = document.size;
    for (std::uint64_t i = chunk + 1; !document.is_stream && i * chunk_bytes < document.size; ++i) {
      const std::uint64_t cut = cut_of(i);
      if (cut != Cutter::no_cut) {
        end = cut;
        break;
      }
      worker.check();
      if (worker.is_stopped()) return;
    }

    CorpusText& text = workspace.text;
    text.clear();
    for (std::uint64_t place = begin; place < end;) {
      // At least as much as is left over: a very long piece is split only O(log n) times.
      std::uint64_t size = std::max(std::min(read_bytes, options_.chunk_bytes), text.size());
      size = std::min(size, end - place);
      const std::size_t n = reader.read(document, text.extend(size), size, place);
      text.shrink(size - n);
      if (n == 0) end = place;  // of a stream
      place += n;
      text.check(place == end);
      text.remove_prefix(count_text(text.checked(), place == end, workspace.table));
      done_bytes_ += n;
      worker.check();
      if (worker.is_stopped()) return;
    }
  }

  // Count a text that starts at a safe cut; before the end of the document, only the pieces that no
  // following text can change. Return the number of bytes counted.
  std::size_t count_text(std::string_view text, bool is_end, PieceTable& table) const {
    const std::size_t decided = is_end ? text.size() : cutter_.decided_size(text);
    std::size_t start = 0;
    for (;;) {
      const auto found = cutter_.special_tokens().find(text, start, true);
      if (found.length == 0 || found.start >= decided) break;
      const auto before = text.substr(start, found.start - start);
      count_pieces(before, before.size(), table);
      start = found.start + found.length;
    }
    const std::size_t limit = is_end ? text.size() : cutter_.final_limit(text, start);
    return start + count_pieces(text.substr(start), limit - start, table);
  }

  // Counts `text` up to `limit`: every piece that ends there or before. Returns where it stopped.
  std::size_t count_pieces(std::string_view text, std::size_t limit, PieceTable& table) const {
    return options_.pattern.with_splitter(text, [&](auto splitter) {
      const char* const readable_end = text.data() + text.size();
      std::size_t end = 0;
      for (;;) {
        const std::string_view piece = splitter.next();
        if (piece.empty() || end + piece.size() > limit) return end;
        end += piece.size();
        table.add(piece, readable_end);
      }
    });
  }

  CountOptions options_;
  Cutter cutter_;
  std::deque<Workspace> workspaces_;  // by worker
  std::atomic<std::uint64_t> done_bytes_ = 0;
};

PieceCounter::PieceCounter(CountOptions options)
    : engine_(std::make_unique<CountingEngine>(std::move(options))) {}

PieceCounter::~PieceCounter() = default;

void PieceCounter::add_files(std::span<const std::string> paths) {
  std::vector<Document> documents;
  for (const std::string& path : paths) documents.push_back(Document::of_file(path));
  engine_->run(documents);
}

void PieceCounter::add_texts(std::span<const std::string_view> texts) {
  std::vector<Document> documents;
  for (const std::string_view text : texts) documents.push_back(Document::of_text(text));
  engine_->run(documents);
}

PieceCounts PieceCounter::finish() { return engine_->finish(); }

}  // namespace tilth::bpe
