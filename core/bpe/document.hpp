// document: a text in memory, a file or a pipe, with random access where possible.
//
//     const std::string path = "stories.txt";
//     const Document document = Document::of_file(path);
//     DocumentReader reader;
//     reader.read(document, buffer, 4096, 0);  // returns the number of bytes
//
// Contract: a document can be shared between threads; a reader belongs to one thread. The path or
// text must outlive both. Throws std::runtime_error with the path if a file cannot be read.
// Complexity: linear in the bytes read; one file is open per reader.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "../common/interrupt.hpp"

namespace tilth::bpe {

struct Document {
  const std::string* path = nullptr;  // of a file
  std::string_view text;              // of a text
  std::uint64_t size = 0;             // in bytes; UINT64_MAX for a stream
  bool is_stream = false;             // a pipe or device, without random access

  static Document of_file(const std::string& path);
  static Document of_text(std::string_view text) { return {nullptr, text, text.size(), false}; }
};

// Keeps the last file open between calls.
class DocumentReader {
 public:
  // `check` is called when a signal interrupts a wait for a pipe, and may throw.
  explicit DocumentReader(InterruptCheck check = {}) : check_(std::move(check)) {}
  DocumentReader(const DocumentReader&) = delete;
  DocumentReader& operator=(const DocumentReader&) = delete;
  ~DocumentReader() { close(); }

  // Read `size` bytes at `place`, which must exist, and return their number. A stream is read from
  // its current place and may return fewer; 0 at its end.
  std::size_t read(const Document& document, char* to, std::size_t size, std::uint64_t place);

 private:
  void open(const std::string& path);
  void close();

  InterruptCheck check_;
  const std::string* path_ = nullptr;
  int descriptor_ = -1;
};

}  // namespace tilth::bpe
