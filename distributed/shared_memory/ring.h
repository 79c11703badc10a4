// A ring of frames in memory that two processes share: one writes, one reads.
#ifndef WEFT_DISTRIBUTED_SHARED_MEMORY_RING_H_
#define WEFT_DISTRIBUTED_SHARED_MEMORY_RING_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "distributed/grpc/frame.h"
#include "platform/file_descriptor.h"

namespace weft {

// Bytes of frames that a ring holds; a power of two.
inline constexpr size_t kRingBytes = size_t{512} << 10;
// Of the whole mapping: a page of indices, and the frames.
inline constexpr size_t kRingMappingBytes = size_t{4096} + kRingBytes;
// The longest part that is written at once: it stays in a core's own cache from one copy of it to
// the next.
inline constexpr size_t kRingPartBytes = size_t{64} << 10;

// What both ends see. Each index is written by one end alone, and counts bytes from the begin of
// the job. The other end may be hostile and change anything at any time: what is read here is
// copied, checked, and then used from the copy.
struct RingControl {
  // Of the writer.
  alignas(64) std::atomic<uint64_t> written;
  std::atomic<uint32_t> writer_waits;  // for room: the reader wakes it
  // Of the reader.
  alignas(64) std::atomic<uint64_t> read;
  std::atomic<uint32_t> reader_sleeps;  // the writer wakes it
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint32_t>::is_always_lock_free);
static_assert(sizeof(RingControl) <= 4096);

// Owns a mapping of a ring.
class RingMapping {
 public:
  RingMapping() = default;
  // Maps the file; an error of the system. REQUIRES: it has kRingMappingBytes.
  static absl::StatusOr<RingMapping> Map(int file);
  RingMapping(RingMapping&& other) noexcept;
  RingMapping& operator=(RingMapping&& other) noexcept;
  ~RingMapping();
  RingControl& control() const { return *reinterpret_cast<RingControl*>(bytes_); }
  std::byte* frames() const { return bytes_ + (kRingMappingBytes - kRingBytes); }

 private:
  std::byte* bytes_ = nullptr;
};

// The writing end. Frames begin at multiples of 128 bytes, so that a header never goes over the end
// of the ring; a part that would is cut there. One thread at a time, but for has_room.
class RingWriter {
 public:
  // Makes the memory: a file without a name, which can neither shrink nor grow any more.
  static absl::StatusOr<std::unique_ptr<RingWriter>> Create();

  // For the reader's process.
  int file() const { return file_.get(); }
  // Whether a part of a message that has so many bytes left would be written now. Any thread.
  bool has_room(uint64_t bytes_left) const;
  // Writes the frame with as much of `part` as there is room for, at most kRingPartBytes; sets
  // frame.part_bytes to that, and its checksum. False where there is no room. DataLoss where the
  // reader's index makes no sense. REQUIRES: `bytes_left` bytes at `part`.
  absl::StatusOr<bool> Write(Frame& frame, const std::byte* part, uint64_t bytes_left);
  // Whether the reader sleeps and has to be woken by the caller, who alone is told so. After Write.
  bool TakeReaderSleeps();
  // From now on the reader says when it has made room; has_room must be asked once more after it.
  void AnnounceWait();
  void CancelWait() { mapping_.control().writer_waits.store(0, std::memory_order_relaxed); }

 private:
  RingWriter(FileDescriptor file, RingMapping mapping)
      : file_(std::move(file)), mapping_(std::move(mapping)) {}
  // Bytes that are free; more than kRingBytes where the reader's index makes no sense.
  uint64_t Free() const;

  const FileDescriptor file_;
  const RingMapping mapping_;
  std::atomic<uint64_t> written_{0};
};

// The reading end. One thread at a time, but for has_next.
class RingReader {
 public:
  // PermissionDenied for a file that is no memory of this kind: its size could change under the
  // mapping, and reading would then end the process.
  static absl::StatusOr<std::unique_ptr<RingReader>> Open(const FileDescriptor& file);

  // Whether something has come. Any thread.
  bool has_next() const {
    return mapping_.control().written.load(std::memory_order_seq_cst) !=
           read_.load(std::memory_order_relaxed);
  }
  // The oldest frame, whose part begins at part(); false where there is none. DataLoss where the
  // indices or the frame make no sense. What lies at part() may change at any time.
  absl::StatusOr<bool> Read(Frame& frame) const;
  const std::byte* part() const { return Record() + kFrameHeaderBytes; }
  // The frame that Read has given is done with.
  void Advance(const Frame& frame);
  // Whether the writer waits for room, enough is free now, and it has to be woken by the caller,
  // who alone is told so. After Advance.
  bool TakeWriterWaits();
  // From now on the writer says when it has written, or no more; has_next must be asked once more
  // after `true`.
  void AnnounceSleep(bool sleeps);

 private:
  explicit RingReader(RingMapping mapping) : mapping_(std::move(mapping)) {}
  const std::byte* Record() const {
    return mapping_.frames() + read_.load(std::memory_order_relaxed) % kRingBytes;
  }

  const RingMapping mapping_;
  std::atomic<uint64_t> read_{0};
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_SHARED_MEMORY_RING_H_
