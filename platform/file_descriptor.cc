#include "platform/file_descriptor.h"

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "platform/task_thread.h"

namespace weft {
namespace {

// What O_DIRECT asks of memory, offsets and lengths: the largest block of today's disks.
constexpr size_t kDirectUnit = 4096;
// A disk is busy with pieces of this size, so many at a time.
constexpr size_t kPieceBytes = size_t{4} << 20;
constexpr int kWritesAtATime = 4;

bool IsAligned(const std::byte* memory) {
  return reinterpret_cast<uintptr_t>(memory) % kDirectUnit == 0;
}

// Whether an error says that the file system does not write so, rather than that the disk failed.
bool SaysUnsupported(int error) {
  return error == EINVAL || error == EOPNOTSUPP || error == ENOSYS || error == ENOTTY;
}

// 0 or an errno. The bytes lie at `offset` of the file.
int WriteAt(int file, std::span<const std::byte> bytes, size_t offset) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    if (written == 0) return EIO;
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<size_t>(written);
  }
  return 0;
}

// The pieces of one file, which threads take one after the other.
class DirectPieces {
 public:
  // `bytes`: whole units.
  DirectPieces(int file, std::span<const std::byte> bytes) : file_(file), bytes_(bytes) {}

  // 0 or the errno of a failure: the disk's rather than that of a way that it does not know.
  int WriteAll() {
    RunOnThreads(kWritesAtATime, [this] { WritePieces(); });
    return error_.load();
  }

 private:
  void WritePieces() {
    while (error_.load(std::memory_order_relaxed) == 0) {
      const size_t offset = next_.fetch_add(kPieceBytes);
      if (offset >= bytes_.size()) return;
      const size_t count = std::min(kPieceBytes, bytes_.size() - offset);
      const int error = WriteAt(file_, bytes_.subspan(offset, count), offset);
      if (error != 0) error_.store(error);
    }
  }

  const int file_;
  const std::span<const std::byte> bytes_;
  std::atomic<size_t> next_{0};  // offset of the piece that nobody has taken
  std::atomic<int> error_{0};
};

// Past the system's cache. False where the file system does not do that, in which case nothing of
// what the file holds counts; else `error` is 0 or the errno.
bool WriteDirectly(int file, std::span<const std::byte> bytes, int& error) {
  const int flags = fcntl(file, F_GETFL);
  if (flags < 0 || fcntl(file, F_SETFL, flags | O_DIRECT) != 0) return false;
  // Without room of its own beforehand a file grows with each write, and one waits for another.
  error = fallocate(file, 0, 0, static_cast<off_t>(bytes.size())) == 0 ? 0 : errno;
  if (SaysUnsupported(error) || error == EINTR) error = 0;
  const size_t whole = bytes.size() / kDirectUnit * kDirectUnit;
  if (error == 0) error = DirectPieces(file, bytes.first(whole)).WriteAll();
  if (fcntl(file, F_SETFL, flags) != 0) return false;
  if (error == 0) error = WriteAt(file, bytes.subspan(whole), whole);
  return !SaysUnsupported(error);
}

}  // namespace

int WriteWholeFile(const FileDescriptor& file, std::span<const std::byte> bytes) {
  int error = 0;
  const bool is_large = bytes.size() >= kDirectWriteBytes && IsAligned(bytes.data());
  if (is_large && WriteDirectly(file.get(), bytes, error)) return error;
  return WriteAt(file.get(), bytes, 0);
}

}  // namespace weft
