#include "ops/testing/emulator/emulator.h"

#include <cxxabi.h>

#include <cstdlib>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/testing/emulator/grid_run.h"
#include "ops/testing/emulator/work_order.h"

namespace weft::testing {
namespace {

constexpr size_t kMaxReports = 20;
constexpr int kMaxAlike = 3;
constexpr size_t kMaxLaunchRecords = 100'000;
// With more, the emulator forgets who touched what so far.
constexpr size_t kMaxPasts = 100'000;
constexpr uint32_t kMaxAccesses = uint32_t{1} << 31;

std::string TypeText(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : type.name();
}

}  // namespace

void Emulator::Add(void* data, size_t bytes) {
  MutexLock lock(mutex_);
  memory_.Add(data, bytes);
}

void Emulator::Remove(void* data) {
  MutexLock lock(mutex_);
  memory_.Remove(data);
}

void Emulator::Describe(const void* data, const std::string& name, bool read_only) {
  MutexLock lock(mutex_);
  const std::shared_ptr<MemoryRegion> region = memory_.Find(data);
  if (region == nullptr) return;
  region->name = name;
  region->is_read_only = read_only;
}

void Emulator::MarkWritten(const void* data, size_t bytes) {
  MutexLock lock(mutex_);
  const std::shared_ptr<MemoryRegion> region = memory_.Find(data);
  if (region == nullptr) return;
  const auto offset = static_cast<size_t>(static_cast<const uint8_t*>(data) - region->data);
  for (size_t i = offset; i < region->bytes && i - offset < bytes; ++i) {
    region->shadow[i] = ByteShadow{kWrittenByHost, 0};
  }
}

uint32_t Emulator::Begin(uint32_t stream, const std::string& what) {
  if (next_access_ > kMaxAccesses || pasts_.size() >= kMaxPasts) {
    memory_.ForgetAccesses();
    pasts_.clear();
    next_access_ = kFirstAccess;
  }
  pasts_[next_access_] = {stream, WorkOrder::Global().Begin(stream), what};
  return next_access_;
}

const Emulator::Past& Emulator::PastOf(uint32_t access) const {
  return std::prev(pasts_.upper_bound(access))->second;
}

bool Emulator::IsBefore(uint32_t access, uint32_t stream) const {
  if (access < kFirstAccess) return true;
  const Past& past = PastOf(access);
  return WorkOrder::Global().IsBefore(past.stream, past.number, stream);
}

void Emulator::RunGrid(uint32_t stream, const std::string& stream_name,
                       const cuda::LaunchGrid& grid, const EmulatedBody& body) {
  const std::string name = TypeText(*body.type);
  MutexLock lock(mutex_);
  const uint32_t first = Begin(stream, absl::StrCat("kernel ", name, " on stream ", stream_name));
  GridRunOptions options;
  options.seed = options_.seed * 1'000'003 + launches_.size();
  options.max_steps = options_.max_steps;
  options.shuffles_order_memory = options_.shuffles_order_memory;
  options.counts_traffic = options_.counts_traffic;
  // Called by the run alone, which this thread makes while it holds the lock.
  const auto is_before = [this, stream](uint32_t access) {
    mutex_.AssertHeld();
    return IsBefore(access, stream);
  };
  const auto describe = [this](uint32_t access) {
    mutex_.AssertHeld();
    return PastOf(access).what;
  };
  const auto report = [this, &name](const std::string& where, const std::string& what) {
    mutex_.AssertHeld();
    Report(absl::StrCat("kernel ", name, ", ", where), what);
  };
  GridRun run(grid, body, options, {memory_, first, is_before, describe, report});
  run.Run();
  next_access_ += run.accesses() + 1;
  if (launches_.size() < kMaxLaunchRecords) {
    launches_.push_back(
        {name, grid, stream_name, run.bytes_read(), run.bytes_written(), run.traffic()});
  }
}

void Emulator::Copy(uint32_t stream, const std::string& stream_name, const void* from, void* to,
                    size_t bytes) {
  if (bytes == 0) return;
  MutexLock lock(mutex_);
  const std::string what = absl::StrCat("a copy on stream ", stream_name);
  const uint32_t own = Begin(stream, what);
  ++next_access_;
  const std::shared_ptr<MemoryRegion> source = memory_.Find(from);
  const std::shared_ptr<MemoryRegion> target = memory_.Find(to);
  size_t source_offset = 0;
  if (source != nullptr) {
    source_offset = static_cast<size_t>(static_cast<const uint8_t*>(from) - source->data);
    if (source->is_freed || source_offset + bytes > source->bytes) {
      Report(what, absl::StrCat("reads ", source->name, ", which was freed"));
      return;
    }
    CheckCopyRead(stream, what, own, *source, source_offset, bytes, target == nullptr);
  }
  if (target == nullptr) return;
  const auto offset = static_cast<size_t>(static_cast<uint8_t*>(to) - target->data);
  if (target->is_freed || offset + bytes > target->bytes) {
    Report(what, absl::StrCat("writes ", target->name, ", which was freed"));
    return;
  }
  CheckCopyWrite(stream, what, own, *target, offset, bytes, source.get(), source_offset);
}

void Emulator::CheckCopyRead(uint32_t stream, const std::string& what, uint32_t own,
                             MemoryRegion& region, size_t offset, size_t bytes, bool to_host) {
  uint32_t good = kWrittenByHost;
  uint32_t good_read = 0;
  bool reported = false;
  for (size_t i = offset; i < offset + bytes; ++i) {
    ByteShadow& byte = region.shadow[i];
    if (byte.read == good_read || IsBefore(byte.read, stream)) {
      good_read = byte.read;
      byte.read = own;
    }
    if (byte.write == good || reported) continue;
    if (byte.write == kNeverWritten) {
      if (!to_host || !options_.checks_copies_to_host) continue;
      reported = true;
      Report(what, absl::StrCat("copies ", bytes, " bytes of ", region.name, " + ", offset,
                                " to the host; nobody has written ", region.name, " + ", i));
      continue;
    }
    good = byte.write;
    if (IsBefore(good, stream)) continue;
    reported = true;
    Report(what, absl::StrCat("reads ", region.name, " + ", i, ", which ", PastOf(good).what,
                              " writes: no stream or event orders the two"));
  }
}

void Emulator::CheckCopyWrite(uint32_t stream, const std::string& what, uint32_t own,
                              MemoryRegion& region, size_t offset, size_t bytes,
                              const MemoryRegion* source, size_t source_offset) {
  uint32_t good = kWrittenByHost;
  bool reported = false;
  for (size_t i = 0; i < bytes; ++i) {
    ByteShadow& byte = region.shadow[offset + i];
    for (const uint32_t access : {byte.write, byte.read}) {
      if (access == good || access < kFirstAccess || access == own || reported) continue;
      good = access;
      if (IsBefore(access, stream)) continue;
      reported = true;
      Report(what, absl::StrCat("writes ", region.name, " + ", offset + i, ", which ",
                                PastOf(access).what, access == byte.write ? " writes" : " reads",
                                ": no stream or event orders the two"));
    }
    const bool is_written =
        source == nullptr || source->shadow[source_offset + i].write != kNeverWritten;
    byte = ByteShadow{is_written ? own : kNeverWritten, 0};
  }
}

void Emulator::Report(const std::string& who, const std::string& what) {
  ++report_count_;
  if (reports_.size() == kMaxReports) return;
  // The same from many threads leaves room for something else.
  std::string alike = what;
  std::erase_if(alike, [](char c) { return c >= '0' && c <= '9'; });
  if (++alike_[alike] <= kMaxAlike) reports_.push_back(absl::StrCat(who, ": ", what));
}

absl::Status Emulator::Verify() const {
  MutexLock lock(mutex_);
  if (report_count_ == 0) return absl::OkStatus();
  std::string text = reports_.front();
  if (report_count_ > 1) absl::StrAppend(&text, " (and ", report_count_ - 1, " more reports)");
  return absl::InternalError(text);
}

std::vector<std::string> Emulator::reports() const {
  MutexLock lock(mutex_);
  return reports_;
}

int64_t Emulator::report_count() const {
  MutexLock lock(mutex_);
  return report_count_;
}

void Emulator::ClearReports() {
  MutexLock lock(mutex_);
  reports_.clear();
  alike_.clear();
  report_count_ = 0;
}

std::vector<EmulatedLaunchRecord> Emulator::launches() const {
  MutexLock lock(mutex_);
  return launches_;
}

}  // namespace weft::testing
