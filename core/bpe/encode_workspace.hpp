// encode_workspace: what one thread needs while it encodes, and how it borrows that from an
// Encoder.
//
//     Encoder::Checkout workspace(encoder);
//     workspace->cache.find(...);
//
// Only for encode*.cpp. No two threads ever share a workspace, so its cache needs no lock and no
// line of it travels between cores.
#pragma once

#include <atomic>
#include <memory>

#include "encode.hpp"

namespace tilth::bpe {

struct Encoder::Workspace {
  PieceCache cache;
  Merger merger;
  std::string_view text;  // the whole text of the call: offsets in errors count from its beginning
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
