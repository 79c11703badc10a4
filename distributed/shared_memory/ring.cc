#include "distributed/shared_memory/ring.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/checksum.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"

namespace weft {
namespace {

constexpr uint64_t kRecordAlignment = 128;
static_assert(kFrameHeaderBytes < kRecordAlignment);
static_assert(kRingBytes % kRecordAlignment == 0 && kRingPartBytes <= kFramePartBytes);
// Less room than this is worth no part of a longer message.
constexpr uint64_t kWorthwhileBytes = uint64_t{32} << 10;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

constexpr uint64_t RecordBytes(uint64_t part_bytes) {
  return (kFrameHeaderBytes + part_bytes + kRecordAlignment - 1) / kRecordAlignment *
         kRecordAlignment;
}

absl::Status BrokenIndex(const char* whose, uint64_t written, uint64_t read) {
  return absl::DataLossError(absl::StrCat("the ", whose,
                                          "'s index in shared memory makes no sense: ", written,
                                          " bytes written, ", read, " read"));
}

}  // namespace

absl::StatusOr<RingMapping> RingMapping::Map(int file) {
  void* const mapped =
      mmap(nullptr, kRingMappingBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) return SystemError(errno, "map", "a ring in shared memory");
  RingMapping mapping;
  mapping.bytes_ = static_cast<std::byte*>(mapped);
  return mapping;
}

RingMapping::RingMapping(RingMapping&& other) noexcept
    : bytes_(std::exchange(other.bytes_, nullptr)) {}

RingMapping& RingMapping::operator=(RingMapping&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

RingMapping::~RingMapping() {
  if (bytes_ != nullptr) munmap(bytes_, kRingMappingBytes);
}

absl::StatusOr<std::unique_ptr<RingWriter>> RingWriter::Create() {
  FileDescriptor file(memfd_create("weft-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return SystemError(errno, "make", "a ring in shared memory");
  if (ftruncate(file.get(), kRingMappingBytes) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    return SystemError(errno, "size", "a ring in shared memory");
  }
  WEFT_ASSIGN_OR_RETURN(RingMapping mapping, RingMapping::Map(file.get()));
  new (&mapping.control()) RingControl{};
  // A reader that has not come yet needs no waking: it looks first.
  return std::unique_ptr<RingWriter>(new RingWriter(std::move(file), std::move(mapping)));
}

uint64_t RingWriter::Free() const {
  const uint64_t read = mapping_.control().read.load(std::memory_order_seq_cst);
  return kRingBytes - (written_.load(std::memory_order_relaxed) - read);
}

bool RingWriter::has_room(uint64_t bytes_left) const {
  return Free() >=
         std::min(RecordBytes(std::min<uint64_t>(bytes_left, kRingPartBytes)), kWorthwhileBytes);
}

absl::StatusOr<bool> RingWriter::Write(Frame& frame, const std::byte* part, uint64_t bytes_left) {
  const uint64_t written = written_.load(std::memory_order_relaxed);
  const uint64_t free = Free();
  if (free > kRingBytes || free % kRecordAlignment != 0) {
    return BrokenIndex("reader", written, written - (kRingBytes - free));
  }
  const uint64_t wanted = std::min<uint64_t>(bytes_left, kRingPartBytes);
  if (free < std::min(RecordBytes(wanted), kWorthwhileBytes)) return false;
  const uint64_t offset = written % kRingBytes;
  const uint64_t room = std::min(free, kRingBytes - offset) - kFrameHeaderBytes;
  frame.part_bytes = std::min(wanted, room);
  std::byte* const record = mapping_.frames() + offset;
  if (frame.part_bytes > 0) std::memcpy(record + kFrameHeaderBytes, part, frame.part_bytes);
  frame.header.checksum = Checksum({part, frame.part_bytes});
  const FrameHeaderBytes header = EncodeFrameHeader(frame);
  std::memcpy(record, header.data(), header.size());
  const uint64_t end = written + RecordBytes(frame.part_bytes);
  written_.store(end, std::memory_order_relaxed);
  // Before TakeReaderSleeps looks: seen before the reader sleeps, or its sleep is seen there.
  mapping_.control().written.store(end, std::memory_order_seq_cst);
  return true;
}

bool RingWriter::TakeReaderSleeps() {
  std::atomic<uint32_t>& sleeps = mapping_.control().reader_sleeps;
  return sleeps.load(std::memory_order_seq_cst) != 0 && sleeps.exchange(0) != 0;
}

void RingWriter::AnnounceWait() {
  mapping_.control().writer_waits.store(1, std::memory_order_seq_cst);
}

absl::StatusOr<std::unique_ptr<RingReader>> RingReader::Open(const FileDescriptor& file) {
  const auto refused = [](const std::string& what) {
    return absl::PermissionDeniedError(absl::StrCat("a ring in shared memory is refused: ", what));
  };
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (seals < 0) return refused("its file is none of shared memory");
  // Of huge pages there may be none when one is read for the first time.
  struct statfs system = {};
  if (fstatfs(file.get(), &system) != 0 || system.f_type != TMPFS_MAGIC) {
    return refused("its file is not of ordinary memory");
  }
  if ((seals & F_SEAL_SHRINK) == 0) return refused("its file can shrink");
  if ((seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0) return refused("it cannot be written");
  struct stat status = {};
  if (fstat(file.get(), &status) != 0 || status.st_size != static_cast<off_t>(kRingMappingBytes)) {
    return refused(absl::StrCat("it has ", status.st_size, " bytes, expected ", kRingMappingBytes));
  }
  WEFT_ASSIGN_OR_RETURN(RingMapping mapping, RingMapping::Map(file.get()));
  return std::unique_ptr<RingReader>(new RingReader(std::move(mapping)));
}

absl::StatusOr<bool> RingReader::Read(Frame& frame) const {
  const uint64_t read = read_.load(std::memory_order_relaxed);
  const uint64_t written = mapping_.control().written.load(std::memory_order_acquire);
  if (written == read) return false;
  const uint64_t filled = written - read;
  if (filled > kRingBytes || filled % kRecordAlignment != 0) {
    return BrokenIndex("writer", written, read);
  }
  FrameHeaderBytes header;
  std::memcpy(header.data(), Record(), header.size());
  WEFT_ASSIGN_OR_RETURN(frame, DecodeFrameHeader(header));
  const uint64_t record = RecordBytes(frame.part_bytes);
  if (record > filled || record > kRingBytes - read % kRingBytes) {
    return absl::DataLossError(absl::StrCat("a frame in shared memory makes no sense: a part of ",
                                            frame.part_bytes, " bytes, of ", filled, " written"));
  }
  return true;
}

void RingReader::Advance(const Frame& frame) {
  const uint64_t end = read_.load(std::memory_order_relaxed) + RecordBytes(frame.part_bytes);
  read_.store(end, std::memory_order_relaxed);
  mapping_.control().read.store(end, std::memory_order_seq_cst);  // before TakeWriterWaits looks
}

bool RingReader::TakeWriterWaits() {
  RingControl& control = mapping_.control();
  if (control.writer_waits.load(std::memory_order_seq_cst) == 0) return false;
  const uint64_t filled =
      control.written.load(std::memory_order_relaxed) - read_.load(std::memory_order_relaxed);
  // Not for each part: the writer would be woken as often.
  if (filled > kRingBytes / 2 && filled <= kRingBytes) return false;
  return control.writer_waits.exchange(0) != 0;
}

void RingReader::AnnounceSleep(bool sleeps) {
  mapping_.control().reader_sleeps.store(
      sleeps ? 1 : 0, sleeps ? std::memory_order_seq_cst : std::memory_order_relaxed);
}

}  // namespace weft
