#include "regex.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "code_points.hpp"
#include "hexadecimal.hpp"
#include "unicode_tables.hpp"

// How a pattern becomes an automaton.
//
// 1. The parser reads the pattern into a graph of nodes (Thompson's construction). A node consumes
// a
//    character of a set, looks at one, or has an ordered list of successors, the preferred first.
// 2. The sets of all nodes divide the code points into classes that no node tells apart.
// 3. The subset construction follows all paths at once. A state is the list of nodes that paths
// have
//    reached, ordered by preference; a node that a preferred path has reached already is dropped,
//    and so is every path behind the first that has matched. So the automaton finds the match that
//    backtracking finds.
// 4. Lookahead needs the next character. A state therefore holds paths before their empty steps;
// the
//    steps are taken when the next character is known, and a match is reported one character late.

namespace tilth::bpe {
namespace {

using CodePointSet = std::vector<std::pair<std::uint32_t, std::uint32_t>>;  // sorted, inclusive

constexpr std::uint32_t last_code_point = 0x10FFFF;

CodePointSet sorted(CodePointSet ranges) {
  std::sort(ranges.begin(), ranges.end());
  CodePointSet merged;
  for (const auto& [first, last] : ranges) {
    if (!merged.empty() && first <= merged.back().second + 1) {
      merged.back().second = std::max(merged.back().second, last);
    } else {
      merged.emplace_back(first, last);
    }
  }
  return merged;
}

CodePointSet complement(const CodePointSet& set) {
  CodePointSet rest;
  std::uint32_t next = 0;
  for (const auto& [first, last] : set) {
    if (first > next) rest.emplace_back(next, first - 1);
    next = last + 1;
  }
  if (next <= last_code_point) rest.emplace_back(next, last_code_point);
  return rest;
}

bool contains(const CodePointSet& set, std::uint32_t code_point) {
  const auto after =
      std::upper_bound(set.begin(), set.end(), code_point,
                       [](std::uint32_t value, const auto& range) { return value < range.first; });
  return after != set.begin() && std::prev(after)->second >= code_point;
}

bool intersect(const CodePointSet& a, const CodePointSet& b) {
  return std::any_of(a.begin(), a.end(), [&](const auto& range) {
    const auto found = std::lower_bound(
        b.begin(), b.end(), range.first,
        [](const auto& other, std::uint32_t value) { return other.second < value; });
    return found != b.end() && found->first <= range.second;
  });
}

// The code points of a general category ("Lu") or of a group of them ("L"); empty if unknown.
CodePointSet category_ranges(std::string_view name) {
  CodePointSet set;
  const std::size_t num_ranges = std::size(unicode_category_ranges);
  for (std::size_t i = 0; i < num_ranges; ++i) {
    const std::uint32_t first = unicode_category_ranges[i] / 32;
    const std::uint32_t next =
        i + 1 < num_ranges ? unicode_category_ranges[i + 1] / 32 : last_code_point + 1;
    const std::string_view category(unicode_categories + 2 * (unicode_category_ranges[i] % 32), 2);
    if (!name.empty() && category.starts_with(name)) set.emplace_back(first, next - 1);
  }
  return set;
}

// White_Space: the separators and six control characters. The property is closed (UAX #44).
CodePointSet white_space() {
  CodePointSet set = {{0x09, 0x0D}, {0x85, 0x85}};
  for (const auto& range : category_ranges("Z")) set.push_back(range);
  return sorted(set);
}

// The graph. `target` is the successor; for `split`, `targets` are, in order of preference.
struct Node {
  enum class Kind : std::uint8_t { set, look, split, match } kind;
  CodePointSet set = {};    // set: consumed; look: the next character must be in it
  bool allows_end = false;  // look: the end of the text is accepted too
  std::size_t target = 0;
  std::vector<std::size_t> targets = {};
};

// The syntax tree of a pattern.
struct Tree {
  enum class Kind : std::uint8_t { set, look, sequence, alternatives, repeat } kind;
  CodePointSet set = {};
  bool allows_end = false;
  std::vector<Tree> parts = {};
  std::size_t least = 0;
  std::optional<std::size_t> most = {};
  bool is_possessive = false;
};

bool may_be_empty(const Tree& tree) {
  const auto is_empty = [](const Tree& part) { return may_be_empty(part); };
  switch (tree.kind) {
    case Tree::Kind::set:
      return false;
    case Tree::Kind::look:
      return true;
    case Tree::Kind::sequence:
      return std::all_of(tree.parts.begin(), tree.parts.end(), is_empty);
    case Tree::Kind::alternatives:
      return std::any_of(tree.parts.begin(), tree.parts.end(), is_empty);
    case Tree::Kind::repeat:
      return tree.least == 0 || may_be_empty(tree.parts[0]);
  }
  return true;
}

class Parser {
 public:
  explicit Parser(std::string_view pattern) : pattern_(pattern) {}

  Tree parse() {
    Tree tree = alternatives();
    if (!is_done()) fail("has an unmatched )");
    return tree;
  }

 private:
  [[noreturn]] static void fail(const std::string& problem) { throw RegexUnsupported(problem); }

  bool is_done() const { return position_ == pattern_.size(); }
  bool starts_with(std::string_view text) const {
    return pattern_.substr(position_).starts_with(text);
  }
  bool take(std::string_view text) {
    if (!starts_with(text)) return false;
    position_ += text.size();
    return true;
  }
  std::uint32_t take_code_point() {
    if (is_done()) fail("ends too early");
    const CodePoint found = decode_code_point(pattern_, position_);
    position_ += found.length;
    return found.value;
  }

  Tree alternatives() {
    if (++depth_ > 50) fail("is nested too deeply");
    Tree tree{.kind = Tree::Kind::alternatives};
    do tree.parts.push_back(sequence());
    while (take("|"));
    --depth_;
    return tree.parts.size() == 1 ? std::move(tree.parts[0]) : tree;
  }

  Tree sequence() {
    Tree tree{.kind = Tree::Kind::sequence};
    while (!is_done() && !starts_with("|") && !starts_with(")")) {
      tree.parts.push_back(repeated(atom()));
    }
    return tree;
  }

  Tree repeated(Tree atom) {
    std::size_t least = 0;
    std::optional<std::size_t> most;
    if (take("?")) {
      most = 1;
    } else if (take("+")) {
      least = 1;
    } else if (take("{")) {
      least = number();
      most = least;
      if (take(",")) most = starts_with("}") ? std::nullopt : std::optional(number());
      if (!take("}") || (most && *most < least)) fail("has a malformed repetition");
    } else if (!take("*")) {
      return atom;
    }
    if (starts_with("?")) fail("has a lazy repetition");
    Tree tree{.kind = Tree::Kind::repeat, .least = least, .most = most};
    tree.is_possessive = take("+");
    if (starts_with("*") || starts_with("+") || starts_with("?") || starts_with("{")) {
      fail("repeats a repetition");
    }
    if (may_be_empty(atom)) fail("repeats an expression that may match the empty string");
    if (tree.is_possessive && atom.kind != Tree::Kind::set) {
      fail("has a possessive repetition of more than one character class");
    }
    tree.parts.push_back(std::move(atom));
    return tree;
  }

  std::size_t number() {
    std::size_t value = 0;
    const std::size_t first = position_;
    while (!is_done() && pattern_[position_] >= '0' && pattern_[position_] <= '9') {
      value = 10 * value + static_cast<std::size_t>(pattern_[position_++] - '0');
      if (value > Regex::max_nodes) fail("repeats too often");
    }
    if (position_ == first) fail("has a malformed repetition");
    return value;
  }

  Tree atom() {
    if (take("(")) return group();
    if (take("[")) return {.kind = Tree::Kind::set, .set = folded(bracketed())};
    if (take("\\")) return {.kind = Tree::Kind::set, .set = folded(escaped())};
    for (const char* const other : {".", "^", "$", "*", "+", "?", "{", "}", "]"}) {
      if (starts_with(other)) fail(std::string("has an unsupported ") + other);
    }
    const std::uint32_t character = take_code_point();
    return {.kind = Tree::Kind::set, .set = folded({{character, character}})};
  }

  Tree group() {
    const bool outer = ignores_case_;
    Tree tree;
    if (take("?!") || starts_with("?=")) {
      const bool is_negative = !take("?=");
      Tree ahead = alternatives();
      while (ahead.kind == Tree::Kind::sequence && ahead.parts.size() == 1) {
        Tree only = std::move(ahead.parts[0]);
        ahead = std::move(only);
      }
      if (ahead.kind != Tree::Kind::set) fail("looks ahead further than one character");
      tree = {.kind = Tree::Kind::look,
              .set = is_negative ? complement(ahead.set) : ahead.set,
              .allows_end = is_negative};
    } else {
      if (take("?i:")) {
        ignores_case_ = true;
      } else if (!take("?:") && starts_with("?")) {
        fail("has an unsupported group");
      }
      tree = alternatives();
    }
    ignores_case_ = outer;
    if (!take(")")) fail("has an unmatched (");
    return tree;
  }

  // The set of a character class after its [.
  CodePointSet bracketed() {
    const bool is_negated = take("^");
    CodePointSet set;
    if (starts_with("]")) fail("has an empty character class");
    while (!take("]")) {
      for (const char* const operation : {"[", "&&", "--", "~~", "||"}) {
        if (starts_with(operation)) fail("has a set operation in a character class");
      }
      const bool is_escape = take("\\");
      const CodePointSet item = is_escape ? escaped() : single(take_code_point());
      const bool is_range = starts_with("-") && !starts_with("-]");
      if (!is_range) {
        set.insert(set.end(), item.begin(), item.end());
        continue;
      }
      take("-");
      const CodePointSet end = take("\\") ? escaped() : single(take_code_point());
      if (!is_single(item) || !is_single(end) || item[0].first > end[0].first) {
        fail("has a malformed range");
      }
      set.emplace_back(item[0].first, end[0].first);
    }
    set = sorted(set);
    return is_negated ? complement(set) : set;
  }

  static CodePointSet single(std::uint32_t code_point) { return {{code_point, code_point}}; }
  static bool is_single(const CodePointSet& set) {
    return set.size() == 1 && set[0].first == set[0].second;
  }

  // The set of an escape after its backslash.
  CodePointSet escaped() {
    const std::uint32_t character = take_code_point();
    switch (character) {
      case 's':
        return white_space();
      case 'S':
        return complement(white_space());
      case 'd':
        return sorted(category_ranges("Nd"));
      case 'D':
        return complement(sorted(category_ranges("Nd")));
      case 'p':
        return category();
      case 'P':
        return complement(category());
      case 't':
        return single('\t');
      case 'n':
        return single('\n');
      case 'r':
        return single('\r');
      case 'f':
        return single('\f');
      case 'v':
        return single('\v');
      case 'x':
        return single(take("{") ? hexadecimal(8, true) : hexadecimal(2, false));
      case 'u':
        return single(hexadecimal(4, false));
      default:
        break;
    }
    const bool is_word = character == '_' || character >= 0x80 ||
                         (character | 0x20) - 'a' <= 'z' - 'a' || character - '0' <= 9;
    if (is_word) fail("has an unsupported escape");
    return single(character);
  }

  CodePointSet category() {
    const std::size_t end = pattern_.find('}', position_);
    if (!take("{") || end == std::string_view::npos) fail("has a malformed \\p");
    const std::string_view name = pattern_.substr(position_, end - position_);
    position_ = end + 1;
    CodePointSet set = category_ranges(name);
    if (set.empty()) fail("names a property other than a general category");
    return sorted(set);
  }

  std::uint32_t hexadecimal(std::size_t most_digits, bool is_braced) {
    const std::size_t first = position_;
    const std::uint32_t value = read_hexadecimal(pattern_, position_, most_digits);
    const std::size_t num_digits = position_ - first;
    const bool is_complete = is_braced ? num_digits > 0 && take("}") : num_digits == most_digits;
    if (!is_complete || value > last_code_point) fail("has a malformed escape");
    return value;
  }

  // The set with both cases of its letters, where case is ignored. Unicode folds U+017F to s and
  // U+212A to k.
  CodePointSet folded(CodePointSet set) const {
    if (!ignores_case_) return set;
    if (set.empty() || set.back().second >= 0x80) fail("ignores the case of a letter beyond ASCII");
    CodePointSet both = set;
    for (const auto& [first, last] : set) {
      for (std::uint32_t c = first; c <= last; ++c) {
        if ((c | 0x20) < 'a' || (c | 0x20) > 'z') continue;
        both.emplace_back(c ^ 0x20, c ^ 0x20);
        if ((c | 0x20) == 's') both.emplace_back(0x17F, 0x17F);
        if ((c | 0x20) == 'k') both.emplace_back(0x212A, 0x212A);
      }
    }
    return sorted(both);
  }

  std::string_view pattern_;
  std::size_t position_ = 0;
  std::size_t depth_ = 0;
  bool ignores_case_ = false;
};

// From a tree to nodes, built from the end: `next` is the node that follows.
class Builder {
 public:
  explicit Builder(const Tree& tree) {
    nodes.push_back({.kind = Node::Kind::match});
    start = add(tree, 0);
  }

  std::vector<Node> nodes;
  std::size_t start = 0;

 private:
  std::size_t add_node(Node node) {
    if (nodes.size() == Regex::max_nodes) throw RegexUnsupported("is too large");
    nodes.push_back(std::move(node));
    return nodes.size() - 1;
  }

  std::size_t add(const Tree& tree, std::size_t next) {
    switch (tree.kind) {
      case Tree::Kind::set:
        return add_node({.kind = Node::Kind::set, .set = tree.set, .target = next});
      case Tree::Kind::look:
        return add_node({.kind = Node::Kind::look,
                         .set = tree.set,
                         .allows_end = tree.allows_end,
                         .target = next});
      case Tree::Kind::sequence:
        for (auto part = tree.parts.rbegin(); part != tree.parts.rend(); ++part) {
          next = add(*part, next);
        }
        return next;
      case Tree::Kind::alternatives: {
        Node split{.kind = Node::Kind::split};
        for (const Tree& part : tree.parts) split.targets.push_back(add(part, next));
        return add_node(std::move(split));
      }
      case Tree::Kind::repeat:
        return add_repeat(tree, next);
    }
    throw RegexUnsupported("is malformed");
  }

  std::size_t add_repeat(const Tree& tree, std::size_t next) {
    const Tree& body = tree.parts[0];
    if (tree.is_possessive && may_follow(next, body.set)) {
      throw RegexUnsupported("has a possessive repetition that differs from a greedy one");
    }
    if (tree.most) {  // each optional copy may be skipped to what follows
      const std::size_t after = next;
      for (std::size_t i = tree.least; i < *tree.most; ++i) {
        const std::size_t copy = add(body, next);
        next = add_node({.kind = Node::Kind::split, .targets = {copy, after}});
      }
    } else {
      const std::size_t loop = add_node({.kind = Node::Kind::split});
      const std::size_t copy = add(body, loop);
      nodes[loop].targets = {copy, next};
      next = loop;
    }
    for (std::size_t i = 0; i < tree.least; ++i) next = add(body, next);
    return next;
  }

  // Whether a character of the set may be consumed, or looked at, from a node on.
  bool may_follow(std::size_t node, const CodePointSet& set) const {
    std::vector<std::size_t> open = {node};
    std::vector<bool> is_seen(nodes.size());
    while (!open.empty()) {
      const std::size_t at = open.back();
      open.pop_back();
      if (is_seen[at]) continue;
      is_seen[at] = true;
      const Node& each = nodes[at];
      if (each.kind == Node::Kind::look) return true;
      if (each.kind == Node::Kind::set && intersect(each.set, set)) return true;
      if (each.kind == Node::Kind::split) {
        open.insert(open.end(), each.targets.begin(), each.targets.end());
      }
    }
    return false;
  }
};

// The classes of code points that no set of a pattern tells apart.
struct Classes {
  explicit Classes(const std::vector<Node>& nodes) {
    // Sets 0 and 1 are for stops_at_blanks.
    std::vector<CodePointSet> sets = {{{' ', ' '}}, white_space()};
    for (const Node& node : nodes) {
      const auto found = std::find(sets.begin(), sets.end(), node.set);
      set_of_node.push_back(static_cast<std::size_t>(found - sets.begin()));
      if (found == sets.end()) sets.push_back(node.set);
    }
    std::vector<std::uint32_t> bounds = {0};
    for (const CodePointSet& set : sets) {
      for (const auto& [first, last] : set) bounds.insert(bounds.end(), {first, last + 1});
    }
    std::sort(bounds.begin(), bounds.end());
    bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
    if (bounds.back() > last_code_point) bounds.pop_back();

    std::map<std::vector<bool>, std::uint32_t> numbers;
    for (const std::uint32_t bound : bounds) {
      std::vector<bool> in_sets;
      for (const CodePointSet& set : sets) in_sets.push_back(contains(set, bound));
      const auto number = static_cast<std::uint32_t>(numbers.size());
      const auto [found, is_new] = numbers.emplace(in_sets, number);
      if (is_new) members.push_back(std::move(in_sets));
      ranges.emplace_back(bound, found->second);
    }
    if (members.size() > 254) throw RegexUnsupported("has too many character classes");
  }

  std::size_t size() const { return members.size(); }
  bool is_space(std::size_t c) const { return members[c][1]; }

  std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges;  // first code point, class
  std::vector<std::size_t> set_of_node;
  std::vector<std::vector<bool>> members;  // by class and set
};

// The subset construction.
class Determinizer {
 public:
  Determinizer(const Builder& graph, const Classes& classes)
      : nodes_(graph.nodes), classes_(classes) {
    number_of({});
    number_of({graph.start});
    for (std::size_t state = 0; state < lists_.size(); ++state) {
      for (std::size_t c = 0; c <= classes.size(); ++c) {
        const std::vector<std::size_t> list = lists_[state];
        bool is_match = false;
        const std::vector<std::size_t> next = step(list, c, is_match);
        if (is_match && state == 1) throw RegexUnsupported("matches the empty string");
        transitions.push_back(static_cast<std::uint16_t>(2 * number_of(next) + is_match));
      }
    }
  }

  std::vector<std::uint16_t> transitions;
  std::size_t num_states() const { return lists_.size(); }

 private:
  std::size_t number_of(const std::vector<std::size_t>& list) {
    const auto [found, is_new] = numbers_.emplace(list, lists_.size());
    if (is_new) lists_.push_back(list);
    if (lists_.size() > Regex::max_states) throw RegexUnsupported("needs too many states");
    return found->second;
  }

  // Follow the empty steps of a list, in order of preference, given the class of the next
  // character (or the end), and consume it.
  std::vector<std::size_t> step(const std::vector<std::size_t>& list, std::size_t next_class,
                                bool& is_match) const {
    const bool is_end = next_class == classes_.size();
    const auto accepts = [&](std::size_t node) {
      return !is_end && classes_.members[next_class][classes_.set_of_node[node]];
    };
    std::vector<std::size_t> reached;
    std::vector<bool> is_seen(nodes_.size()), is_reached(nodes_.size());
    std::vector<std::size_t> open(list.rbegin(), list.rend());  // the preferred last
    while (!open.empty()) {
      const std::size_t at = open.back();
      open.pop_back();
      if (is_seen[at]) continue;
      is_seen[at] = true;
      const Node& node = nodes_[at];
      if (node.kind == Node::Kind::match) {
        is_match = true;
        break;
      }
      if (node.kind == Node::Kind::split) {
        open.insert(open.end(), node.targets.rbegin(), node.targets.rend());
      } else if (node.kind == Node::Kind::look) {
        if (accepts(at) || (is_end && node.allows_end)) open.push_back(node.target);
      } else if (accepts(at) && !is_reached[node.target]) {
        is_reached[node.target] = true;
        reached.push_back(node.target);
      }
    }
    return reached;
  }

  const std::vector<Node>& nodes_;
  const Classes& classes_;
  std::map<std::vector<std::size_t>, std::size_t> numbers_;
  std::vector<std::vector<std::size_t>> lists_;
};

}  // namespace

Regex::Regex(std::string_view pattern) {
  if (pattern.size() > max_pattern_bytes) throw RegexUnsupported("is too long");
  const Builder graph(Parser(pattern).parse());
  const Classes classes(graph.nodes);
  const Determinizer automaton(graph, classes);
  transitions_ = automaton.transitions;
  num_classes_ = static_cast<std::uint32_t>(classes.size() + 1);

  // Two stages: equal blocks of 128 code points are stored once.
  std::map<std::string, std::uint16_t> rows;
  std::string block(128, 0);
  auto range = classes.ranges.begin();
  for (std::uint32_t first = 0; first <= last_code_point; first += 128) {
    for (std::uint32_t i = 0; i < 128; ++i) {
      while (std::next(range) != classes.ranges.end() && std::next(range)->first <= first + i) {
        ++range;
      }
      block[i] = static_cast<char>(range->second);
    }
    const auto [found, is_new] = rows.emplace(block, static_cast<std::uint16_t>(rows.size()));
    if (is_new) class_blocks_.insert(class_blocks_.end(), block.begin(), block.end());
    block_rows_.push_back(found->second);
  }
  for (std::size_t state = 0; state < automaton.num_states(); ++state) {
    for (std::size_t byte = 0; byte < 128; ++byte) {
      ascii_transitions_.push_back(transitions_[state * num_classes_ + class_blocks_[byte]]);
    }
  }

  const std::size_t blank = class_blocks_[' '], end = num_classes_ - 1;
  const auto row_after = [&](std::size_t state, std::size_t c) {
    return transitions_.data() + num_classes_ * (transitions_[state * num_classes_ + c] >> 1);
  };
  for (std::size_t c = 0; c < end; ++c) {
    const std::uint16_t* const row = row_after(1, c);
    for (std::size_t next = 0; next <= end; ++next) {
      if (row[next] % 2 == 0) matches_every_character_ = false;
    }
    if (classes.is_space(c)) continue;
    for (std::size_t state = 1; state < automaton.num_states(); ++state) {
      const std::uint16_t* const after = row_after(state, c);
      if (after[blank] != after[end]) stops_at_blanks_ = false;
    }
  }
}

std::size_t Regex::match_end(std::string_view text, std::size_t start) const {
  std::size_t end = no_match, position = start, state = 1;
  const std::size_t size = text.size();
  for (;;) {
    std::uint16_t transition = 0;
    std::size_t length = 1;
    if (position == size) {
      transition = transitions_[state * num_classes_ + num_classes_ - 1];
    } else if (const auto byte = static_cast<unsigned char>(text[position]); byte < 0x80) {
      transition = ascii_transitions_[state * 128 + byte];
    } else {
      const CodePoint found = decode_code_point(text, position);
      length = found.length;
      const std::size_t row = block_rows_[found.value / 128];
      transition =
          transitions_[state * num_classes_ + class_blocks_[row * 128 + found.value % 128]];
    }
    end = transition % 2 == 1 ? position : end;
    state = transition >> 1;
    if (state == 0) return end;
    position += length;
  }
}

std::size_t Regex::gap_end(std::string_view text, std::size_t start) const {
  std::size_t position = start;
  do {
    position += decode_code_point(text, position).length;
  } while (position < text.size() && match_end(text, position) == no_match);
  return position;
}

}  // namespace tilth::bpe
