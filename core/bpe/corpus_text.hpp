// corpus_text: a buffer that turns parts of a file into well-formed UTF-8.
//
//     CorpusText text;
//     text.append("caf\xC3");
//     text.check(false);  // text.checked() is "caf": the last character is incomplete
//
// Contract: each maximal malformed part becomes U+FFFD, as in Python's
// bytes.decode("utf-8", "replace"), wherever the bytes are cut. Complexity: linear.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "utf8.hpp"

namespace tilth::bpe {

class CorpusText {
 public:
  std::size_t size() const { return bytes_.size(); }
  void clear() {
    bytes_.clear();
    num_checked_ = 0;
  }

  void append(std::string_view bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  // Append `size` bytes for the caller to fill; shrink removes those that were not filled.
  char* extend(std::size_t size) {
    bytes_.resize(bytes_.size() + size);
    return bytes_.data() + bytes_.size() - size;
  }
  void shrink(std::size_t size) { bytes_.resize(bytes_.size() - size); }

  // Validate the appended bytes and replace malformed parts. An incomplete character at the end
  // stays unchecked, unless the text ends here.
  void check(bool is_end) {
    num_checked_ += well_formed_size({bytes_.data() + num_checked_, bytes_.size() - num_checked_});
    if (num_checked_ < bytes_.size()) repair(is_end);
  }

  // The bytes that were checked and not removed: well-formed UTF-8.
  std::string_view checked() const { return {bytes_.data(), num_checked_}; }

  void remove_prefix(std::size_t size) {
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(size));
    num_checked_ -= size;
  }

 private:
  void repair(bool is_end) {
    const std::string raw(bytes_.begin() + static_cast<std::ptrdiff_t>(num_checked_), bytes_.end());
    std::string_view rest = raw;
    bytes_.resize(num_checked_);
    while (!rest.empty()) {
      const std::size_t size = well_formed_size(rest);
      append(rest.substr(0, size));
      rest.remove_prefix(size);
      if (rest.empty()) break;
      const Utf8Part part = read_utf8_part(rest);
      if (part.state == Utf8Part::incomplete && !is_end) break;
      append("\xEF\xBF\xBD");
      rest.remove_prefix(part.size);
    }
    num_checked_ = bytes_.size();
    append(rest);
  }

  std::vector<char> bytes_;
  std::size_t num_checked_ = 0;
};

}  // namespace tilth::bpe
