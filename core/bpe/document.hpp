// document: one text of a corpus, in memory or in a file, read in parts from any place.
//
//     const Document document = Document::of_file("stories.txt");
//     DocumentReader reader;
//     reader.read(document, buffer, 4096, 0);  // how many bytes there were
//
// Promise: what cannot be read is a std::runtime_error that names the path. A document is a value
// that threads may share, a reader belongs to one thread. The path or text must outlive both.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tilth::bpe {

struct Document {
  const std::string* path = nullptr;  // of a file
  std::string_view text;              // of a text
  std::uint64_t size = 0;             // for a stream, as long as it goes
  bool is_stream = false;             // a pipe or device, which has no places

  static Document of_file(const std::string& path);
  static Document of_text(std::string_view text) { return {nullptr, text, text.size(), false}; }
};

// Keeps the last file open from call to call.
class DocumentReader {
 public:
  DocumentReader() = default;
  DocumentReader(const DocumentReader&) = delete;
  DocumentReader& operator=(const DocumentReader&) = delete;
  ~DocumentReader() { close(); }

  // Read `size` bytes from `place` on, which the document must have. A stream is read on from where
  // it is, and gives what it has now; 0 at its end.
  std::size_t read(const Document& document, char* to, std::size_t size, std::uint64_t place);

 private:
  void open(const std::string& path);
  void close();

  const std::string* path_ = nullptr;
  int descriptor_ = -1;
};

}  // namespace tilth::bpe
