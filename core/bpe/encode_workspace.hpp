// encode_workspace: the cache and the merger of one thread, borrowed from an Encoder.
//
//     Encoder::Checkout workspace(encoder);
//     workspace->cache.find(...);
//
// Only for encode*.cpp. Contract: a workspace belongs to one thread at a time, so its cache needs
// no lock, and its cache lines stay on one core. Checking out takes O(most_kept_workspaces).
#pragma once

#include <array>
#include <atomic>
#include <memory>

#include "encode.hpp"
#include "merge_group.hpp"

namespace tilth::bpe {

struct Encoder::Workspace {
  PieceCache cache;
  Merger merger;
  GroupMerger group_merger;
  std::string normalized;  // a buffer
  std::string_view text;   // the whole text of the call: offsets in errors are relative to it

  // Pieces whose ids insert_missed() inserts later, and a buffer of these ids.
  static constexpr std::size_t most_missed = 512;
  std::array<Missed, most_missed> missed;
  std::size_t num_missed = 0;
  TokenIds missed_ids;
};

class Encoder::Checkout {
 public:
  explicit Checkout(const Encoder& encoder) : encoder_(encoder) {
    for (auto& slot : encoder.workspaces_) {
      if (slot.load(std::memory_order_relaxed) == nullptr) continue;
      workspace_.reset(slot.exchange(nullptr, std::memory_order_acquire));
      if (workspace_ != nullptr) return;
    }
    workspace_ = std::make_unique<Workspace>();
    ++encoder_.num_workspaces_;
  }

  ~Checkout() {
    workspace_->merger.forget_long_pieces();
    for (auto& slot : encoder_.workspaces_) {
      Workspace* empty = nullptr;
      if (slot.compare_exchange_strong(empty, workspace_.get(), std::memory_order_release,
                                       std::memory_order_relaxed)) {
        static_cast<void>(workspace_.release());
        return;
      }
    }
    --encoder_.num_workspaces_;
  }

  Checkout(const Checkout&) = delete;
  Checkout& operator=(const Checkout&) = delete;

  Workspace& operator*() const { return *workspace_; }
  Workspace* operator->() const { return workspace_.get(); }

 private:
  const Encoder& encoder_;
  std::unique_ptr<Workspace> workspace_;
};

}  // namespace tilth::bpe
