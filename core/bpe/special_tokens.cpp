#include "special_tokens.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <unordered_set>

namespace tilth::bpe {

SpecialTokens::SpecialTokens(std::span<const Token> tokens) {
  if (tokens.empty()) return;
  nodes_.resize(1);
  std::unordered_set<std::uint32_t> ids;
  for (const Token& token : tokens) {
    const std::string name = "special token " + std::to_string(token.id);
    if (token.bytes.empty()) throw std::invalid_argument(name + " is empty");
    if (!ids.insert(token.id).second) throw std::invalid_argument(name + " is given twice");
    std::uint32_t node = 0;
    for (const char c : token.bytes) {
      const auto byte = static_cast<unsigned char>(c);
      std::uint32_t next = child(node, byte);
      if (next == 0) {
        next = static_cast<std::uint32_t>(nodes_.size());
        nodes_.push_back({byte, false, 0, 0, nodes_[node].first_child});
        nodes_[node].first_child = next;
      }
      node = next;
    }
    if (nodes_[node].is_end) {
      throw std::invalid_argument(name + " and special token " + std::to_string(nodes_[node].id) +
                                  " have the same bytes");
    }
    nodes_[node].is_end = true;
    nodes_[node].id = token.id;

    longest_bytes_ = std::max(longest_bytes_, token.bytes.size());
    const auto first = static_cast<unsigned char>(token.bytes[0]);
    begins_[first] = true;
    if (token.bytes.find(' ', 1) != std::string_view::npos) may_span_blank_ = true;
  }
  if (std::count(begins_.begin(), begins_.end(), true) == 1) {
    only_beginning_ =
        static_cast<int>(std::find(begins_.begin(), begins_.end(), true) - begins_.begin());
  }
}

std::uint32_t SpecialTokens::child(std::uint32_t node, unsigned char byte) const {
  std::uint32_t next = nodes_[node].first_child;
  while (next != 0 && nodes_[next].byte != byte) next = nodes_[next].sibling;
  return next;
}

SpecialTokens::Found SpecialTokens::find(std::string_view text, std::size_t from,
                                         bool is_whole) const {
  if (nodes_.empty()) return {text.size(), 0, 0};
  for (std::size_t start = from; start < text.size(); ++start) {
    if (only_beginning_ >= 0) {  // memchr is vectorized
      const void* next = std::memchr(text.data() + start, only_beginning_, text.size() - start);
      if (next == nullptr) break;
      start = static_cast<std::size_t>(static_cast<const char*>(next) - text.data());
    } else if (!begins_[static_cast<unsigned char>(text[start])]) {
      continue;
    }
    Found found{start, 0, 0};
    std::uint32_t node = 0;
    std::size_t i = start;
    for (; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) break;
      if (nodes_[node].is_end) found = {start, i + 1 - start, nodes_[node].id};
    }
    const bool could_go_on = i == text.size() && node != 0 && nodes_[node].first_child != 0;
    if (could_go_on && !is_whole) return {start, 0, 0};
    if (found.length > 0) return found;
  }
  return {text.size(), 0, 0};
}

bool SpecialTokens::spans(std::string_view text, std::size_t place) const {
  for (std::size_t before = 1; before < longest_bytes_ && before <= place; ++before) {
    std::uint32_t node = 0;
    for (std::size_t i = place - before; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) break;
      if (nodes_[node].is_end && i >= place) return true;
    }
  }
  return false;
}

}  // namespace tilth::bpe
