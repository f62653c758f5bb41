#include "document.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace tilth::bpe {
namespace {

[[noreturn]] void fail(const std::string& path, const char* reason) {
  throw std::runtime_error("cannot read " + path + ": " + reason);
}

}  // namespace

Document Document::of_file(const std::string& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) fail(path, std::strerror(errno));
  if (S_ISDIR(status.st_mode)) fail(path, std::strerror(EISDIR));
  if (!S_ISREG(status.st_mode)) return {&path, {}, UINT64_MAX, true};
  return {&path, {}, static_cast<std::uint64_t>(status.st_size), false};
}

std::size_t DocumentReader::read(const Document& document, char* to, std::size_t size,
                                 std::uint64_t place) {
  if (document.path == nullptr) {
    return document.text.copy(to, size, static_cast<std::size_t>(place));
  }
  open(*document.path);
  std::size_t done = 0;
  while (done < size) {
    const ssize_t n = document.is_stream ? ::read(descriptor_, to + done, size - done)
                                         : ::pread(descriptor_, to + done, size - done,
                                                   static_cast<off_t>(place + done));
    if (n < 0 && errno == EINTR) {
      if (check_) check_();
      continue;
    }
    if (n < 0) fail(*document.path, std::strerror(errno));
    done += static_cast<std::size_t>(n);
    if (document.is_stream) break;  // do not wait for more data of a pipe
    if (n == 0) fail(*document.path, "it became shorter");
  }
  return done;
}

void DocumentReader::open(const std::string& path) {
  if (descriptor_ >= 0 && path_ == &path) return;
  close();
  while ((descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC)) < 0 && errno == EINTR) {
    if (check_) check_();  // a pipe without a writer blocks
  }
  if (descriptor_ < 0) fail(path, std::strerror(errno));
  path_ = &path;
}

void DocumentReader::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

}  // namespace tilth::bpe
