// encode_workspace: what one thread needs while it encodes, and how it borrows that from an
// Encoder.
//
//     Encoder::Checkout workspace(encoder);   // the mutex is held here and when it ends, nowhere
//     else workspace->cache.find(...);
//
// Only for encode*.cpp. No two threads ever share a workspace, so its cache needs no lock and no
// line of it travels between cores.
#pragma once

#include <utility>

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
    {
      const std::lock_guard lock(encoder.workspaces_mutex_);
      if (!encoder.workspaces_.empty()) {
        workspace_ = std::move(encoder.workspaces_.back());
        encoder.workspaces_.pop_back();
      }
    }
    if (workspace_ == nullptr) workspace_ = std::make_unique<Workspace>();
  }

  ~Checkout() {
    workspace_->merger.forget_long_pieces();
    const std::lock_guard lock(encoder_.workspaces_mutex_);
    // The room was made with the Encoder, so that nothing is allocated, and nothing throws, here.
    if (encoder_.workspaces_.size() < most_kept_workspaces) {
      encoder_.workspaces_.push_back(std::move(workspace_));
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
