#include "count.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "characters.hpp"
#include "corpus_text.hpp"
#include "count_table.hpp"
#include "pretokenize.hpp"
#include "special_tokens.hpp"

namespace tilth::bpe {
namespace {

using Clock = std::chrono::steady_clock;

// Reads of this size stay in the second-level cache until they are counted.
constexpr std::size_t read_bytes = std::size_t{256} << 10;

// No splitter looks further beyond the end of a piece before it knows that the piece ends there:
// the three letters of a contraction, or a wide space and the character after it (property 2).
constexpr std::size_t look_ahead_bytes = 16;

// Whether malformed bytes, which are replaced after cutting, might then make up a special token.
bool has_replacement_character(const std::vector<std::string>& tokens) {
  return std::any_of(tokens.begin(), tokens.end(), [](const std::string& token) {
    return token.find("\xEF\xBF\xBD") != std::string::npos;
  });
}

std::vector<Token> numbered(const std::vector<std::string>& special_tokens) {
  std::vector<Token> tokens;
  for (const std::string& token : special_tokens) {
    tokens.push_back({static_cast<std::uint32_t>(tokens.size()), token});
  }
  return tokens;
}

// A file that is open. A worker keeps one open from task to task.
class File {
 public:
  File() = default;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { close(); }

  void open(const std::string& path) {
    if (descriptor_ >= 0 && path == path_) return;
    close();
    path_ = path;
    do descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    while (descriptor_ < 0 && errno == EINTR);
    if (descriptor_ < 0) fail();
  }

  // Reads until `size` bytes are there or the file ends; says how many. A stream (a pipe, a device)
  // has no places, and is read on from where it is.
  std::size_t read(char* to, std::size_t size, std::uint64_t place, bool is_stream) {
    std::size_t done = 0;
    while (done < size) {
      const ssize_t n = is_stream ? ::read(descriptor_, to + done, size - done)
                                  : ::pread(descriptor_, to + done, size - done,
                                            static_cast<off_t>(place + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail();
      if (n == 0) break;
      done += static_cast<std::size_t>(n);
      if (is_stream) break;  // what a pipe has now is worth counting now
    }
    return done;
  }

  [[noreturn]] void fail() const { throw_error(path_, std::strerror(errno)); }
  [[noreturn]] static void throw_error(const std::string& path, const char* reason) {
    throw std::runtime_error("cannot read " + path + ": " + reason);
  }

 private:
  void close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }

  std::string path_;
  int descriptor_ = -1;
};

// One document of a job: a file or a text, worked on in chunks of equal size.
struct Document {
  const std::string* path = nullptr;  // of a file
  std::string_view text;              // of a text
  std::uint64_t size = 0;             // for a stream, as long as it goes
  bool is_stream = false;
  std::uint64_t first_task = 0;
};

Document describe_file(const std::string& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) File::throw_error(path, std::strerror(errno));
  if (S_ISDIR(status.st_mode)) File::throw_error(path, std::strerror(EISDIR));
  Document document;
  document.path = &path;
  document.is_stream = !S_ISREG(status.st_mode);
  document.size = document.is_stream ? UINT64_MAX : static_cast<std::uint64_t>(status.st_size);
  return document;
}

// What the threads of one job share.
struct Job {
  std::vector<Document> documents;
  std::uint64_t num_tasks = 0;
  std::uint64_t total_bytes = 0;  // zero where unknown
  std::atomic<std::uint64_t> next_task = 0;
  std::atomic<std::uint64_t> done_bytes = 0;
  std::atomic<bool> is_stopped = false;  // by an error or by the progress function
  std::mutex mutex;                      // guards the rest
  std::condition_variable finished;
  unsigned num_running = 0;
  std::exception_ptr error;

  void stop_with(std::exception_ptr reason) {
    const std::lock_guard lock(mutex);
    if (!error) error = reason;
    is_stopped = true;
  }
};

}  // namespace

// Counts `text` up to `limit`: every piece that ends there or before. Returns where it stopped.
using CountPieces = std::size_t (*)(std::string_view text, std::size_t limit, PieceTable& table);

class CountingEngine {
 public:
  CountingEngine(CountOptions options, CountPieces count_pieces)
      : options_(std::move(options)),
        special_tokens_(numbered(options_.special_tokens)),
        may_cut_(!has_replacement_character(options_.special_tokens)),
        count_pieces_(count_pieces) {
    options_.num_threads = std::max(1u, options_.num_threads);
    options_.chunk_bytes = std::max<std::size_t>(1, options_.chunk_bytes);
    workers_.emplace_back();
  }

  void run(std::vector<Document> documents) {
    Job job;
    bool is_size_known = true;
    for (Document& document : documents) {
      document.first_task = job.num_tasks;
      // A stream has no places to begin at, so it is one task.
      job.num_tasks += document.is_stream
                           ? 1
                           : (document.size + options_.chunk_bytes - 1) / options_.chunk_bytes;
      is_size_known &= !document.is_stream;
      if (is_size_known) job.total_bytes += document.size;
    }
    if (!is_size_known) job.total_bytes = 0;
    job.documents = std::move(documents);

    const auto num_workers =
        std::min<std::uint64_t>(options_.num_threads, std::max<std::uint64_t>(1, job.num_tasks));
    while (workers_.size() < num_workers) workers_.emplace_back();
    last_report_ = Clock::now();
    {
      std::vector<std::thread> threads;
      threads.reserve(num_workers);
      try {
        for (std::size_t i = 1; i < num_workers; ++i) {
          {
            const std::lock_guard lock(job.mutex);
            ++job.num_running;
          }
          threads.emplace_back([this, &job, i] { work_apart(job, workers_[i]); });
        }
      } catch (const std::system_error&) {  // no more threads to be had: go on with what there is
        const std::lock_guard lock(job.mutex);
        --job.num_running;
      }
      try {
        work(job, workers_[0], true);
        std::unique_lock lock(job.mutex);
        while (job.num_running != 0) {
          job.finished.wait_for(lock, std::chrono::milliseconds(50));
          lock.unlock();
          report(job);
          lock.lock();
        }
      } catch (...) {
        job.stop_with(std::current_exception());
      }
      for (std::thread& thread : threads) thread.join();
    }
    if (job.error) std::rethrow_exception(job.error);
  }

  PieceCounts finish() {
    PieceTable& all = workers_.front().table;
    for (; workers_.size() > 1; workers_.pop_back()) all.add_all(std::move(workers_.back().table));
    PieceCounts counts;
    std::size_t num_bytes = 0;
    all.visit([&](std::string_view piece, std::uint64_t) { num_bytes += piece.size(); });
    counts.bytes.reserve(num_bytes);
    counts.offsets.reserve(all.size() + 1);
    counts.counts.reserve(all.size());
    counts.offsets.push_back(0);
    all.visit([&](std::string_view piece, std::uint64_t count) { counts.add(piece, count); });
    workers_.clear();
    workers_.emplace_back();
    return counts;
  }

 private:
  struct Worker {
    PieceTable table;
    CorpusText text;  // read but not yet counted
    std::vector<char> window;
  };

  // The whole life of a thread that is not the calling one.
  void work_apart(Job& job, Worker& worker) noexcept {
    try {
      work(job, worker, false);
    } catch (...) {
      job.stop_with(std::current_exception());
    }
    const std::lock_guard lock(job.mutex);
    --job.num_running;
    job.finished.notify_one();
  }

  void work(Job& job, Worker& worker, bool is_calling_thread) {
    File file;
    const auto go_on = [&](std::uint64_t num_bytes) {
      job.done_bytes += num_bytes;
      if (is_calling_thread) report(job);
      return !job.is_stopped;
    };
    while (go_on(0)) {
      const std::uint64_t task = job.next_task++;
      if (task >= job.num_tasks) break;
      const auto after = std::upper_bound(
          job.documents.begin(), job.documents.end(), task,
          [](std::uint64_t t, const Document& document) { return t < document.first_task; });
      const Document& document = *(after - 1);
      if (document.path != nullptr) file.open(*document.path);
      count_chunk(document, task - document.first_task, file, worker, go_on);
      worker.table.flush();
    }
  }

  void report(Job& job) {
    const auto now = Clock::now();
    if (!options_.progress || now - last_report_ < std::chrono::milliseconds(50)) return;
    last_report_ = now;
    if (!options_.progress({job.done_bytes, job.total_bytes})) throw Interrupted();
  }

  // Counts from the first safe cut in a chunk to the first safe cut in a later one. A chunk without
  // a safe cut is left to whoever counts the chunk before it.
  template <class GoOn>
  void count_chunk(const Document& document, std::uint64_t chunk, File& file, Worker& worker,
                   GoOn go_on) {
    const std::uint64_t chunk_bytes = options_.chunk_bytes;
    const auto cut_of = [&](std::uint64_t i) -> std::uint64_t {  // UINT64_MAX: none in the chunk
      if (i == 0) return 0;
      return find_cut(document, i * chunk_bytes, file, worker.window);
    };
    const std::uint64_t begin = cut_of(chunk);
    if (begin == UINT64_MAX) return;
    std::uint64_t end = document.size;
    if (!document.is_stream) {
      for (std::uint64_t i = chunk + 1; i * chunk_bytes < document.size; ++i) {
        end = cut_of(i);
        if (end != UINT64_MAX) break;
        end = document.size;
        if (!go_on(0)) return;
      }
    }

    CorpusText& text = worker.text;
    text.clear();
    for (std::uint64_t place = begin; place < end;) {
      // As much as is left over, too, so that a piece without end is read again a few times only.
      std::uint64_t size = std::max(std::min(read_bytes, options_.chunk_bytes), text.size());
      size = std::min(size, end - place);
      if (document.path == nullptr) {
        text.append(document.text.substr(place, size));
      } else {
        const std::size_t n = file.read(text.extend(size), size, place, document.is_stream);
        text.shrink(size - n);
        if (n == 0 && !document.is_stream) File::throw_error(*document.path, "it became shorter");
        size = n;
        if (n == 0) end = place;
      }
      place += size;
      text.check(place == end);
      text.remove_prefix(count_text(text.checked(), place == end, worker.table));
      if (!go_on(size)) return;
    }
  }

  // Counts a text whose start is a safe place; where it is not the end of the document, only what
  // no text that may follow can change. Returns how much was counted.
  std::size_t count_text(std::string_view text, bool is_end, PieceTable& table) const {
    // A special token that begins no later than `decided` is there in full, and so is any longer
    // one that it might be the beginning of.
    std::size_t decided = text.size();
    if (!is_end) decided -= std::min(decided, special_tokens_.longest_bytes() + 1);
    std::size_t start = 0;
    for (;;) {
      const auto found = special_tokens_.find(text, start, true);
      if (found.length == 0 || found.start >= decided) break;
      const auto before = text.substr(start, found.start - start);
      count_pieces_(before, before.size(), table);
      start = found.start + found.length;
    }
    const auto rest = text.substr(start);
    if (is_end) return start + count_pieces_(rest, rest.size(), table);
    if (decided < start + look_ahead_bytes) return start;
    // Nor is a run of spaces divided that reaches this far, however long it is: the pattern of
    // cl100k takes it whole if a special token follows, and cuts it after its last line end if not.
    std::size_t limit = decided - look_ahead_bytes;
    for (std::size_t before = limit; before > start;) {
      do --before;
      while (before > start && (text[before] & 0xC0) == 0x80);
      if (decode_character(text, before).kind != CharacterClass::space) break;
      limit = before;
    }
    return start + count_pieces_(rest, limit - start, table);
  }

  // The first safe cut at or after `chunk_start`, within its chunk; UINT64_MAX if there is none.
  std::uint64_t find_cut(const Document& document, std::uint64_t chunk_start, File& file,
                         std::vector<char>& window) const {
    const std::uint64_t chunk_end =
        std::min<std::uint64_t>(chunk_start + options_.chunk_bytes, document.size);
    const std::uint64_t margin = special_tokens_.longest_bytes() + 8;
    const std::uint64_t window_start = chunk_start - std::min(chunk_start, margin);
    for (std::uint64_t reach = 1024;; reach *= 4) {  // text has cuts everywhere: look nearby first
      const std::uint64_t end = std::min(chunk_start + reach, chunk_end);
      const std::size_t size =
          static_cast<std::size_t>(std::min(end + margin, document.size) - window_start);
      std::string_view view;
      if (document.path == nullptr) {
        view = document.text.substr(static_cast<std::size_t>(window_start), size);
      } else {
        window.resize(size);
        if (file.read(window.data(), size, window_start, false) < size) {
          File::throw_error(*document.path, "it became shorter");
        }
        view = {window.data(), size};
      }
      const std::size_t cut = find_cut(view, static_cast<std::size_t>(chunk_start - window_start),
                                       static_cast<std::size_t>(end - window_start));
      if (cut != std::string_view::npos) return window_start + cut;
      if (end == chunk_end) return UINT64_MAX;
    }
  }

  // The first place in text[start, end) where the text may be cut in two without changing a piece:
  // between a letter or number and a character that is neither, outside of any special token. The
  // text must reach a special token's length beyond both, or to where it begins and ends. npos if
  // there is none.
  std::size_t find_cut(std::string_view text, std::size_t start, std::size_t end) const {
    if (!may_cut_) return std::string_view::npos;
    const auto continues = [&](std::size_t i) { return (text[i] & 0xC0) == 0x80; };
    // A byte that continues no character begins one, in malformed text as well.
    while (start < end && continues(start)) ++start;
    for (bool is_after_word = false; start < end;) {
      const Character character = decode_character(text, start);
      const bool is_word =
          character.kind == CharacterClass::letter || character.kind == CharacterClass::number;
      if (is_after_word && !is_word && !continues(start) && !special_tokens_.spans(text, start)) {
        return start;
      }
      is_after_word = is_word;
      start += character.length;
    }
    return std::string_view::npos;
  }

  CountOptions options_;
  SpecialTokens special_tokens_;
  bool may_cut_;
  CountPieces count_pieces_;
  std::vector<Worker> workers_;  // the first belongs to the calling thread
  Clock::time_point last_report_;
};

namespace {

template <class Splitter>
std::size_t count_pieces(std::string_view text, std::size_t limit, PieceTable& table) {
  Splitter splitter(text);
  const char* const readable_end = text.data() + text.size();
  std::size_t end = 0;
  for (;;) {
    const std::string_view piece = splitter.next();
    if (piece.empty() || end + piece.size() > limit) return end;
    end += piece.size();
    table.add(piece, readable_end);
  }
}

}  // namespace

template <class Splitter>
PieceCounter<Splitter>::PieceCounter(CountOptions options)
    : engine_(std::make_unique<CountingEngine>(std::move(options), count_pieces<Splitter>)) {}

template <class Splitter>
PieceCounter<Splitter>::~PieceCounter() = default;

template <class Splitter>
void PieceCounter<Splitter>::add_files(std::span<const std::string> paths) {
  std::vector<Document> documents;
  for (const std::string& path : paths) documents.push_back(describe_file(path));
  engine_->run(std::move(documents));
}

template <class Splitter>
void PieceCounter<Splitter>::add_texts(std::span<const std::string_view> texts) {
  std::vector<Document> documents;
  for (const std::string_view text : texts) {
    Document& document = documents.emplace_back();
    document.text = text;
    document.size = text.size();
  }
  engine_->run(std::move(documents));
}

template <class Splitter>
PieceCounts PieceCounter<Splitter>::finish() {
  return engine_->finish();
}

template class PieceCounter<Gpt2Splitter>;
template class PieceCounter<Cl100kSplitter>;

}  // namespace tilth::bpe
