#include "tensor/testing/fake_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensor/buffer.h"

namespace weft::testing {
namespace {

constexpr size_t kGuard = 64;  // before and after the bytes; keeps the alignment
constexpr uint8_t kGuardByte = 0xFD;
constexpr size_t kPage = 4096;
constexpr size_t kNone = std::numeric_limits<size_t>::max();

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

void FillPattern(std::span<uint8_t> bytes, uint16_t pattern) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(i % 2 == 0 ? pattern & 0xFF : pattern >> 8);
  }
}

bool HasPattern(std::span<const uint8_t> bytes, uint16_t pattern) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != (i % 2 == 0 ? pattern & 0xFF : pattern >> 8)) return false;
  }
  return true;
}

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "fake memory: %s: %s\n", what, std::strerror(errno));
  std::abort();
}

uint8_t* Reserve(size_t capacity, bool protect) {
  const int protection = protect ? PROT_NONE : PROT_READ | PROT_WRITE;
  void* const base =
      mmap(nullptr, capacity, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) Fail("cannot reserve address space");
  return static_cast<uint8_t*>(base);
}

}  // namespace

FakeMemory::FakeMemory(std::string owner, size_t capacity, bool protect)
    : owner_(std::move(owner)),
      capacity_(RoundUp(capacity, kPage)),
      protect_(protect),
      base_(Reserve(capacity_, protect)) {}

FakeMemory::~FakeMemory() { munmap(base_, capacity_); }

void* FakeMemory::Allocate(size_t bytes) {
  if (bytes > capacity_) return nullptr;
  const Allocation allocation{bytes, kGuard + RoundUp(bytes, kAlignment) + kGuard};
  MutexLock lock(mutex_);
  const size_t offset = TakeBlock(allocation.block);
  if (offset == kNone) return nullptr;
  Open();
  std::ranges::fill(Bytes(offset, allocation.block), kGuardByte);
  FillPattern(Bytes(offset + kGuard, bytes), kFreshPattern);
  Close();
  allocations_.emplace(offset, allocation);
  return base_ + offset + kGuard;
}

void FakeMemory::Free(void* data) {
  MutexLock lock(mutex_);
  const size_t offset = static_cast<size_t>(static_cast<uint8_t*>(data) - base_) - kGuard;
  const auto found = allocations_.find(offset);
  const Allocation allocation = found->second;
  allocations_.erase(found);
  Open();
  CheckGuards(offset, allocation);
  FillPattern(Bytes(offset, allocation.block), kFreedPattern);
  Close();
  ReturnBlock(offset, allocation.block);
}

bool FakeMemory::Contains(const void* address) const {
  const auto* const byte = static_cast<const uint8_t*>(address);
  return byte >= base_ && byte < base_ + capacity_;
}

bool FakeMemory::IsAllocated(const void* data, size_t bytes) const {
  if (!Contains(data)) return false;
  const size_t begin = static_cast<size_t>(static_cast<const uint8_t*>(data) - base_);
  MutexLock lock(mutex_);
  auto next = allocations_.upper_bound(begin);
  if (next == allocations_.begin()) return false;
  const auto& [offset, allocation] = *std::prev(next);
  const size_t first = offset + kGuard;
  return begin >= first && begin - first <= allocation.bytes &&
         bytes <= allocation.bytes - (begin - first);
}

absl::Status FakeMemory::Verify() {
  MutexLock lock(mutex_);
  Open();
  for (const auto& [offset, allocation] : allocations_) CheckGuards(offset, allocation);
  for (const auto& [offset, size] : free_blocks_) CheckFreed(offset, size);
  Close();
  return damage_;
}

void FakeMemory::Open() {
  if (accesses_++ == 0) Protect(0, used_end_, /*accessible=*/true);
}

void FakeMemory::Close() {
  if (--accesses_ == 0) Protect(0, used_end_, /*accessible=*/false);
}

void FakeMemory::Protect(size_t begin, size_t end, bool accessible) const {
  const size_t first = begin / kPage * kPage;
  const size_t last = RoundUp(end, kPage);
  if (!protect_ || first >= last) return;
  const int protection = accessible ? PROT_READ | PROT_WRITE : PROT_NONE;
  if (mprotect(base_ + first, last - first, protection) != 0) Fail("cannot change the protection");
}

size_t FakeMemory::TakeBlock(size_t size) {
  for (auto block = free_blocks_.begin(); block != free_blocks_.end(); ++block) {
    const auto [offset, free_size] = *block;
    if (free_size < size) continue;
    Open();
    CheckFreed(offset, free_size);
    Close();
    free_blocks_.erase(block);
    if (free_size > size) free_blocks_.emplace(offset + size, free_size - size);
    return offset;
  }
  // The end of what was ever used grows, from a free block that lies there if there is one.
  size_t offset = used_end_;
  const auto last = free_blocks_.empty() ? free_blocks_.end() : std::prev(free_blocks_.end());
  const bool extends = last != free_blocks_.end() && last->first + last->second == used_end_;
  if (extends) offset = last->first;
  if (size > capacity_ - offset) return kNone;
  if (extends) {
    Open();
    CheckFreed(offset, last->second);
    Close();
    free_blocks_.erase(last);
  }
  if (accesses_ > 0) Protect(used_end_, offset + size, /*accessible=*/true);
  used_end_ = offset + size;
  return offset;
}

void FakeMemory::ReturnBlock(size_t offset, size_t size) {
  const auto next = free_blocks_.lower_bound(offset);
  if (next != free_blocks_.end() && next->first == offset + size) {
    size += next->second;
    free_blocks_.erase(next);
  }
  const auto after = free_blocks_.lower_bound(offset);
  if (after != free_blocks_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  free_blocks_.emplace(offset, size);
}

void FakeMemory::CheckGuards(size_t offset, const Allocation& allocation) {
  const auto intact = [](std::span<const uint8_t> guard) {
    return std::ranges::all_of(guard, [](uint8_t byte) { return byte == kGuardByte; });
  };
  const size_t end = kGuard + allocation.bytes;
  const bool before = intact(Bytes(offset, kGuard));
  const bool after = intact(Bytes(offset + end, allocation.block - end));
  if (before && after) return;
  Damage(absl::StrCat("bytes ", before ? "after" : "before", " a buffer of ", allocation.bytes,
                      " bytes (offset ", offset + kGuard, ") were overwritten"));
}

void FakeMemory::CheckFreed(size_t offset, size_t size) {
  if (HasPattern(Bytes(offset, size), kFreedPattern)) return;
  Damage(absl::StrCat("memory between offsets ", offset, " and ", offset + size,
                      " was written after it was freed"));
}

void FakeMemory::Damage(const std::string& message) {
  if (damage_.ok()) damage_ = absl::InternalError(absl::StrCat(owner_, ": ", message));
}

FakeMemoryAccess::FakeMemoryAccess(FakeMemory& memory) : memory_(memory) {
  MutexLock lock(memory_.mutex_);
  memory_.Open();
}

FakeMemoryAccess::~FakeMemoryAccess() {
  MutexLock lock(memory_.mutex_);
  memory_.Close();
}

}  // namespace weft::testing
