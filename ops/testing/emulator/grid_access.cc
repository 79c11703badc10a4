#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "ops/testing/emulator/grid_run.h"

namespace weft::testing {
namespace {

constexpr uint16_t kSharedPattern = 0x7FF4;  // NaN in each floating type
constexpr size_t kSharedAlignment = 128;
constexpr int64_t kMaxReportsOfLaunch = 10'000;
constexpr size_t kMaxStaticShared = 48 << 10;
constexpr size_t kMaxShared = 227 << 10;  // of a block, on an H100

const char* VerbOf(AccessKind kind) {
  switch (kind) {
    case AccessKind::kRead:
      return "reads";
    case AccessKind::kWrite:
      return "writes";
    default:
      return "changes atomically";
  }
}

bool IsAtomicKind(AccessKind kind) {
  return kind == AccessKind::kAtomic || kind == AccessKind::kAtomicWrite;
}

bool Reads(AccessKind kind) { return kind == AccessKind::kRead || kind == AccessKind::kAtomic; }

}  // namespace

MemoryRegion& EmulatedThread::FindGlobal(const void* pointer) { return run->FindGlobal(pointer); }
MemoryRegion& EmulatedThread::Shared(const void* tag, size_t size) {
  return run->Shared(*this, tag, size);
}
MemoryRegion& EmulatedThread::DynamicShared() {
  return run->Shared(*this, nullptr, run->grid_.shared_bytes);
}
bool EmulatedThread::Access(MemoryRegion& region, uintptr_t address, size_t size, size_t alignment,
                            AccessKind kind) {
  if (!run->Access(*this, region, address, size, alignment, kind)) return false;
  if (run->options_.counts_traffic) {
    // Of p[i] this may be a place in CheckedPointer: one for all such elements of a body.
    warp->traffic.Add(index % cuda::kWarp, __builtin_return_address(0), address, size,
                      region.is_shared);
  }
  return true;
}
void EmulatedThread::OrderByAtomic(const MemoryRegion& region, uintptr_t address) {
  if (!region.is_shared) run->OrderByAtomic(*this, address);
}
void EmulatedThread::Fence() {
  run->Step(*this);
  has_fenced = true;
  is_dirty = false;
  // What came to it by a barrier is covered, too.
  block->is_dirty = false;
}

MemoryRegion& GridRun::FindGlobal(const void* pointer) {
  const auto* const byte = static_cast<const uint8_t*>(pointer);
  for (const std::shared_ptr<MemoryRegion>& region : used_) {
    if (byte >= region->data && byte < region->data + region->bytes) return *region;
  }
  if (pointer == nullptr) return nowhere_;
  std::shared_ptr<MemoryRegion> region = surroundings_.memory.Find(pointer);
  if (region == nullptr) return nowhere_;
  used_.push_back(std::move(region));
  return *used_.back();
}

MemoryRegion& GridRun::Shared(EmulatedThread& thread, const void* tag, size_t bytes) {
  EmulatedBlock& block = *thread.block;
  size_t total = tag == nullptr ? 0 : bytes;
  for (const std::unique_ptr<SharedArray>& array : block.shared) {
    if (array->tag == tag) return *array->region;
    total += array->tag == nullptr ? 0 : array->region->bytes;
  }
  if (!has_reported_static_shared_ &&
      (total > kMaxStaticShared || total + grid_.shared_bytes > kMaxShared)) {
    has_reported_static_shared_ = true;
    Report(thread, absl::StrCat("the block has ", total, " bytes of shared memory and ",
                                grid_.shared_bytes, " of dynamic shared memory; a GPU has ",
                                kMaxStaticShared, ", and ", kMaxShared, " with both"));
  }
  auto array = std::make_unique<SharedArray>();
  array->tag = tag;
  array->bytes.resize(bytes + kSharedAlignment);
  auto* data = array->bytes.data();
  data += kSharedAlignment - reinterpret_cast<uintptr_t>(data) % kSharedAlignment;
  for (size_t i = 0; i + 1 < bytes; i += 2) std::memcpy(data + i, &kSharedPattern, 2);
  array->region = std::make_unique<MemoryRegion>(
      tag == nullptr ? "dynamic shared memory" : absl::StrCat("shared memory of ", bytes, " bytes"),
      data, bytes);
  array->region->is_shared = true;
  block.shared.push_back(std::move(array));
  return *block.shared.back()->region;
}

std::string GridRun::Place(const MemoryRegion& region, uintptr_t address) const {
  const auto begin = reinterpret_cast<uintptr_t>(region.data);
  if (region.data == nullptr) return absl::StrCat("address ", absl::Hex(address));
  if (address < begin) return absl::StrCat(region.name, " - ", begin - address);
  return absl::StrCat(region.name, " + ", address - begin);
}

bool GridRun::IsInside(EmulatedThread& thread, const MemoryRegion& region, uintptr_t address,
                       size_t bytes, size_t alignment, AccessKind kind) {
  const size_t offset = address - reinterpret_cast<uintptr_t>(region.data);
  if (bytes > region.bytes || offset > region.bytes - bytes) {
    std::string what = absl::StrCat(VerbOf(kind), " ", bytes, " bytes at ", Place(region, address),
                                    ", outside of ");
    if (region.data == nullptr) {
      what += "the device's allocations";
    } else {
      absl::StrAppend(&what, "its ", region.bytes, " bytes");
    }
    if (!region.is_shared) {
      const auto other = surroundings_.memory.Find(reinterpret_cast<const void*>(address));
      if (other != nullptr && other.get() != &region) {
        absl::StrAppend(&what, "; that is ", Place(*other, address));
      }
    }
    Report(thread, what);
    return false;
  }
  if (region.is_freed) {
    Report(thread, absl::StrCat(VerbOf(kind), " ", bytes, " bytes at ", Place(region, address),
                                ", which was freed"));
    return false;
  }
  if (address % alignment != 0) {
    Report(thread, absl::StrCat(VerbOf(kind), " ", bytes, " bytes at ", Place(region, address),
                                ", which is not a multiple of ", alignment));
    return false;
  }
  if (kind != AccessKind::kRead && region.is_read_only) {
    Report(thread, absl::StrCat(VerbOf(kind), " ", bytes, " bytes at ", Place(region, address),
                                ", which may only be read"));
    return false;
  }
  return true;
}

bool GridRun::Access(EmulatedThread& thread, MemoryRegion& region, uintptr_t address, size_t bytes,
                     size_t alignment, AccessKind kind) {
  Step(thread);
  if (IsAtomicKind(kind) && order_ == Order::kRandom && Random(4) == 0) Yield(thread);
  if (!IsInside(thread, region, address, bytes, alignment, kind)) return false;
  if (!region.is_shared) {
    if (kind != AccessKind::kWrite) bytes_read_ += static_cast<int64_t>(bytes);
    if (kind != AccessKind::kRead) bytes_written_ += static_cast<int64_t>(bytes);
    if (kind == AccessKind::kWrite) thread.is_dirty = true;
  }
  CheckOrder(thread, region, address - reinterpret_cast<uintptr_t>(region.data), bytes, kind);
  return true;
}

void GridRun::CheckOrder(EmulatedThread& thread, MemoryRegion& region, size_t offset, size_t bytes,
                         AccessKind kind) {
  const uint32_t own = NumberOf(thread, IsAtomicKind(kind));
  // Bytes of an element mostly have the same past: what was looked at last is not looked at again.
  OrderCheck check{own, own, own, 0, own};
  for (size_t i = offset; i < offset + bytes; ++i) {
    CheckWriter(thread, region.shadow[i], kind, check);
    if (kind == AccessKind::kRead) {
      AddReader(thread, region.shadow[i], check);
    } else {
      CheckReaders(thread, region.shadow[i], check);
      region.shadow[i] = ByteShadow{own, 0};
    }
  }
  if (!check.is_unwritten && check.raced == 0) return;
  const std::string access =
      absl::StrCat(VerbOf(kind), " ", bytes, " bytes at ",
                   Place(region, reinterpret_cast<uintptr_t>(region.data) + offset), ", which ");
  if (check.is_unwritten) Report(thread, access + "nobody has written");
  if (check.raced == 0) return;
  Report(thread, absl::StrCat(access, Who(check.raced, thread),
                              check.raced_with_write ? " writes" : " reads",
                              ": a race, nothing orders the two"));
}

void GridRun::CheckWriter(EmulatedThread& thread, const ByteShadow& byte, AccessKind kind,
                          OrderCheck& check) {
  if (byte.write == check.good_write) return;
  if (byte.write == kNeverWritten) {
    check.is_unwritten |= Reads(kind);
    return;
  }
  check.good_write = byte.write;
  if ((IsAtomicKind(kind) && IsAtomic(byte.write)) || IsBefore(byte.write, thread)) return;
  check.raced = byte.write;
  check.raced_with_write = true;
}

void GridRun::CheckReaders(EmulatedThread& thread, const ByteShadow& byte, OrderCheck& check) {
  if (byte.read == 0 || byte.read == check.good_read) return;
  check.good_read = byte.read;
  if (IsBefore(byte.read, thread)) return;
  check.raced = byte.read;
  check.raced_with_write = false;
}

void GridRun::AddReader(EmulatedThread& thread, ByteShadow& byte, OrderCheck& check) {
  if (byte.read == check.own) return;
  if (byte.read != check.former_readers) {
    check.former_readers = byte.read;
    check.new_readers = ReadersWith(byte.read, check.own, thread);
  }
  byte.read = check.new_readers;
}

uint32_t GridRun::NewStretch(const EmulatedThread& thread, Stretch::Of of, bool is_atomic) {
  const EmulatedBlock& block = *thread.block;
  stretches_.push_back({block.number, static_cast<int16_t>(thread.index), of, is_atomic,
                        block.epoch, thread.warp->epoch, block.stamp});
  return surroundings_.first_access + static_cast<uint32_t>(stretches_.size()) - 1;
}

uint32_t GridRun::NumberOf(EmulatedThread& thread, bool is_atomic) {
  const uint64_t version = thread.block->version << 32 | thread.warp->epoch;
  const int i = is_atomic ? 1 : 0;
  if (thread.access_version[i] != version) {
    thread.access_version[i] = version;
    thread.access[i] = NewStretch(thread, Stretch::Of::kThread, is_atomic);
  }
  return thread.access[i];
}

bool GridRun::IsAtomic(uint32_t access) const {
  return access >= surroundings_.first_access &&
         stretches_[access - surroundings_.first_access].is_atomic;
}

bool GridRun::IsBefore(uint32_t access, const EmulatedThread& thread) {
  if (access <= kWrittenByHost) return true;
  if (access < surroundings_.first_access) {
    if (access == last_earlier_) return last_is_before_;
    const auto [entry, is_new] = earlier_.try_emplace(access, true);
    if (is_new) entry->second = surroundings_.is_before(access);
    last_earlier_ = access;
    last_is_before_ = entry->second;
    return last_is_before_;
  }
  const Stretch& former = stretches_[access - surroundings_.first_access];
  const EmulatedBlock& block = *thread.block;
  if (former.of == Stretch::Of::kGrid) return block.seen.size() + 1 >= total_blocks_;
  if (former.block != block.number) {
    const auto seen = block.seen.find(former.block);
    return seen != block.seen.end() && former.stamp <= seen->second;
  }
  if (former.block_epoch != block.epoch) return true;
  if (former.of == Stretch::Of::kThread && former.thread == thread.index) return true;
  if (former.of == Stretch::Of::kBlock) return false;
  return former.thread / cuda::kWarp == thread.warp->index &&
         former.warp_epoch != thread.warp->epoch;
}

uint32_t GridRun::ReadersWith(uint32_t former, uint32_t own, EmulatedThread& thread) {
  if (IsBefore(former, thread)) return own;
  // Of earlier work that nothing orders: each write of this launch is a race with it.
  if (former < surroundings_.first_access) return former;
  const Stretch other = stretches_[former - surroundings_.first_access];
  EmulatedBlock& block = *thread.block;
  EmulatedWarp& warp = *thread.warp;
  if (other.of == Stretch::Of::kGrid) return former;
  if (other.block != block.number) {
    if (grid_readers_ == 0) grid_readers_ = NewStretch(thread, Stretch::Of::kGrid, false);
    return grid_readers_;
  }
  const bool same_warp =
      other.of != Stretch::Of::kBlock && other.thread / cuda::kWarp == warp.index;
  const uint64_t version = block.version << 32 | (same_warp ? warp.epoch : 0);
  uint32_t& readers = same_warp ? warp.readers : block.readers;
  uint64_t& readers_version = same_warp ? warp.readers_version : block.readers_version;
  if (readers_version != version) {
    readers_version = version;
    readers = NewStretch(thread, same_warp ? Stretch::Of::kWarp : Stretch::Of::kBlock, false);
  }
  return readers;
}

// A thread whose writes, and those that a barrier brought to it, are fenced releases them at the
// place; it acquires what others released there.
void GridRun::OrderByAtomic(EmulatedThread& thread, uintptr_t address) {
  EmulatedBlock& block = *thread.block;
  const bool releases =
      (thread.has_fenced || block.has_fenced) && !thread.is_dirty && !block.is_dirty;
  const auto found = released_.find(address);
  if (found != released_.end()) {
    for (const auto& [other, stamp] : found->second) {
      if (other == block.number) continue;
      uint32_t& seen = block.seen[other];
      seen = std::max(seen, stamp);
    }
  }
  if (!releases) return;
  SeenReleases& place = released_[address];
  for (const auto& [other, stamp] : block.seen) {
    uint32_t& released = place[other];
    released = std::max(released, stamp);
  }
  place[block.number] = block.stamp++;
  ++block.version;
}

void GridRun::Report(const EmulatedThread& thread, const std::string& what) {
  if (++reports_ >= kMaxReportsOfLaunch) has_given_up_ = true;
  const EmulatedBlock& block = *thread.block;
  std::string where = absl::StrCat("block ", block.x);
  if (grid_.blocks_y > 1 || grid_.blocks_z > 1) absl::StrAppend(&where, ",", block.y);
  if (grid_.blocks_z > 1) absl::StrAppend(&where, ",", block.z);
  surroundings_.report(absl::StrCat(where, ", thread ", thread.index), what);
}

std::string GridRun::Who(uint32_t access, const EmulatedThread& thread) const {
  if (access < surroundings_.first_access) return surroundings_.describe(access);
  const Stretch& other = stretches_[access - surroundings_.first_access];
  const std::string block = other.block == thread.block->number
                                ? "its block"
                                : absl::StrCat("block number ", other.block);
  switch (other.of) {
    case Stretch::Of::kThread:
      return absl::StrCat("thread ", other.thread, " of ", block,
                          other.is_atomic ? ", with an atomic," : "");
    case Stretch::Of::kWarp:
      return absl::StrCat("warp ", other.thread / cuda::kWarp, " of ", block);
    case Stretch::Of::kBlock:
      return block;
    case Stretch::Of::kGrid:
      return "more than one block";
  }
  return "";
}

}  // namespace weft::testing
