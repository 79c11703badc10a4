#include "ops/custom/isolation/shared_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "platform/status_macros.h"
#include "platform/system_error.h"

namespace weft {
namespace {

constexpr char kMemory[] = "memory that is shared with the helper of an op library";

}  // namespace

absl::StatusOr<SharedPages> SharedPages::Create(size_t bytes) {
  FileDescriptor file(memfd_create("weft-tensors", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return SystemError(errno, "make", kMemory);
  if (ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
    return SystemError(errno, "set the size of", kMemory);
  }
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return SystemError(errno, "seal", kMemory);
  }
  return Map(std::move(file), bytes);
}

absl::StatusOr<SharedPages> SharedPages::Map(FileDescriptor descriptor, size_t bytes) {
  SharedPages pages;
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0);
  if (data == MAP_FAILED) return SystemError(errno, "map", kMemory);
  pages.descriptor_ = std::move(descriptor);
  pages.data_ = static_cast<std::byte*>(data);
  pages.bytes_ = bytes;
  return pages;
}

SharedPages::SharedPages(SharedPages&& other) noexcept
    : descriptor_(std::move(other.descriptor_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

SharedPages& SharedPages::operator=(SharedPages&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedPages::~SharedPages() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

absl::StatusOr<FileDescriptor> SealedFile(const std::string& name,
                                          std::span<const std::byte> bytes) {
  FileDescriptor file(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return SystemError(errno, "make a copy of", name);
  while (!bytes.empty()) {
    const ssize_t written = write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return SystemError(errno, "copy", name);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
  if (fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) return SystemError(errno, "seal", name);
  return file;
}

}  // namespace weft
