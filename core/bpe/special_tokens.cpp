#include "special_tokens.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "characters.hpp"

namespace tilth::bpe {
namespace {

constexpr std::uint8_t strips_left = 1, strips_right = 2, is_single_word = 4;

bool is_space(CodePoint code_point) {
  return !is_malformed(code_point) &&
         classify_code_point(code_point.value) == CharacterClass::space;
}

// \w of Rust's regex crate: letters, marks, decimal digits, letter numbers, connectors, the two
// joiners, and the circled letters that are Alphabetic (PropList.txt).
bool is_word(CodePoint code_point) {
  const std::uint32_t c = code_point.value;
  if (c == 0x200C || c == 0x200D || (0x24B6 <= c && c <= 0x24E9) ||
      (0x1F130 <= c && c <= 0x1F149) || (0x1F150 <= c && c <= 0x1F169) ||
      (0x1F170 <= c && c <= 0x1F189)) {
    return true;
  }
  const auto* const after = std::upper_bound(std::begin(unicode_category_ranges),
                                             std::end(unicode_category_ranges), 32 * c + 31);
  const char* const name = unicode_categories + 2 * (after[-1] % 32);
  const std::string_view category(name, 2);
  return name[0] == 'L' || name[0] == 'M' || category == "Nd" || category == "Nl" ||
         category == "Pc";
}

}  // namespace

SpecialTokens::SpecialTokens(std::span<const Token> tokens, std::span<const TokenOptions> options) {
  if (tokens.empty()) return;
  nodes_.resize(1);
  std::unordered_map<std::uint32_t, std::uint8_t> options_of;
  for (const TokenOptions& each : options) {
    options_of[each.id] = static_cast<std::uint8_t>((each.lstrip ? strips_left : 0) |
                                                    (each.rstrip ? strips_right : 0) |
                                                    (each.single_word ? is_single_word : 0));
  }
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
        nodes_.push_back({byte, false, 0, 0, 0, nodes_[node].first_child});
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
    for (std::size_t i = 1; i < token.bytes.size(); ++i) {
      if (token.bytes[i] == ' ' && token.bytes[i - 1] != ' ') may_span_blank_ = true;
    }
    const auto found = options_of.find(token.id);
    if (found == options_of.end() || found->second == 0) continue;
    has_options_ = true;
    nodes_[node].options = found->second;
    if ((found->second & is_single_word) != 0 && first == ' ') may_span_blank_ = true;
    if ((found->second & strips_right) != 0) {
      strips_after_[static_cast<unsigned char>(token.bytes.back())] = true;
      std::fill(strips_after_.begin() + 0x80, strips_after_.end(), true);
    }
  }
  if (const Node& first = nodes_[nodes_[0].first_child]; first.sibling == 0) {
    shared_byte_ = first.byte;
    const Node& second = nodes_[first.first_child];
    if (!first.is_end && second.sibling == 0 && std::ispunct(second.byte) != 0) {
      shared_byte_ = second.byte;
      shared_place_ = 1;
    }
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
    if (shared_byte_ >= 0) {  // memchr is vectorized
      const std::size_t place = std::min(start + shared_place_, text.size());
      const void* next = std::memchr(text.data() + place, shared_byte_, text.size() - place);
      if (next == nullptr) next = text.data() + text.size();  // the last byte may begin a token
      const auto next_place =
          static_cast<std::size_t>(static_cast<const char*>(next) - text.data());
      start = std::max(start, next_place - shared_place_);
      if (start == text.size()) break;
    } else if (!begins_[static_cast<unsigned char>(text[start])]) {
      continue;
    }
    Found found{start, 0, 0};
    std::uint32_t node = 0;
    std::size_t i = start;
    for (; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) break;
      if (!nodes_[node].is_end) continue;
      found = {start, i + 1 - start, nodes_[node].id, nodes_[node].options};
    }
    const bool could_go_on = i == text.size() && node != 0 && nodes_[node].first_child != 0;
    if (could_go_on && !is_whole) return {start, 0, 0};
    if (found.length > 0) return found;
  }
  return {text.size(), 0, 0};
}

SpecialTokens::Found SpecialTokens::next(std::string_view text, Cursor& cursor) const {
  for (;;) {
    Found found = find(text, cursor.searched, true);
    std::size_t start = found.start, end = found.start + found.length;
    cursor.searched = end;
    if (found.options != 0) {
      if ((found.options & is_single_word) != 0 &&
          ((start > 0 && is_word(previous_code_point(text, start))) ||
           (end < text.size() && is_word(decode_code_point(text, end))))) {
        continue;
      }
      if ((found.options & strips_left) != 0) {
        start = std::max(start, cursor.used);
        while (start > cursor.used) {
          const CodePoint before = previous_code_point(text, start);
          if (!is_space(before)) break;
          start -= before.length;
        }
      }
      if ((found.options & strips_right) != 0) {
        if (end >= cursor.space_end) {  // else this is in the run that ends there
          cursor.space_end = end;
          while (cursor.space_end < text.size()) {
            const CodePoint after = decode_code_point(text, cursor.space_end);
            if (!is_space(after)) break;
            cursor.space_end += after.length;
          }
        }
        end = cursor.space_end;
      }
      if (start >= end) continue;
      found.start = start;
      found.length = end - start;
    }
    cursor.used = end;
    return found;
  }
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
