#include "platform/cpu_info.h"

#include <sched.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "platform/file_system.h"

namespace weft {
namespace {

#if defined(__x86_64__)
// Leaf 7 of CPUID says what the compiler's own detection does not know yet (Intel SDM, volume 2).
struct ExtendedFeatures {
  bool avx_vnni = false;
  bool amx = false;  // Tiles with int8 and bfloat16, and an operating system that saves them.
};

ExtendedFeatures ReadExtendedFeatures() {
  ExtendedFeatures features;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) {
    features.avx_vnni = (eax & (1u << 4)) != 0;
  }
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return features;
  constexpr unsigned kAmxBits = (1u << 22) | (1u << 24) | (1u << 25);
  const bool amx = (edx & kAmxBits) == kAmxBits;
  if (!amx || __get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return features;
  if ((ecx & (1u << 27)) == 0) return features;  // No XGETBV.
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kTileState = (1u << 17) | (1u << 18);
  features.amx = (low & kTileState) == kTileState;
  return features;
}
#endif

std::vector<InstructionSet> SupportedInstructionSets() {
  std::vector<InstructionSet> levels = {InstructionSet::kSse41};
  const auto add = [&levels](bool supported, InstructionSet level) {
    if (supported) levels.push_back(level);
    return supported;
  };
#if defined(__x86_64__)
  __builtin_cpu_init();
  const ExtendedFeatures features = ReadExtendedFeatures();
  add(__builtin_cpu_supports("avx"), InstructionSet::kAvx);
  add(__builtin_cpu_supports("avx2"), InstructionSet::kAvx2) &&
      add(features.avx_vnni, InstructionSet::kAvx2Vnni);
  const bool core =
      add(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"),
          InstructionSet::kAvx512Core);
  const bool vnni =
      core && add(__builtin_cpu_supports("avx512vnni"), InstructionSet::kAvx512CoreVnni);
  const bool bf16 =
      vnni && add(__builtin_cpu_supports("avx512bf16"), InstructionSet::kAvx512CoreBf16);
  if (bf16) add(features.amx, InstructionSet::kAvx512CoreAmx);
#endif
  return levels;
}

// Cores granted by a quota of `quota_text` microseconds in each `period_text`; nothing when
// unlimited.
std::optional<int> QuotaCores(absl::string_view quota_text, absl::string_view period_text) {
  int64_t quota = 0;
  int64_t period = 0;
  if (!absl::SimpleAtoi(quota_text, &quota) || !absl::SimpleAtoi(period_text, &period)) return {};
  if (quota <= 0 || period <= 0) return {};
  return static_cast<int>(std::max<int64_t>(1, (quota + period - 1) / period));
}

std::optional<int> ControlGroupCores(FileSystem& files) {
  const absl::StatusOr<std::string> both = files.ReadFile("/sys/fs/cgroup/cpu.max");
  if (both.ok()) {
    const std::vector<std::string> parts = absl::StrSplit(absl::StripAsciiWhitespace(*both), ' ');
    return parts.size() == 2 ? QuotaCores(parts[0], parts[1]) : std::nullopt;
  }
  const absl::StatusOr<std::string> quota = files.ReadFile("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  const absl::StatusOr<std::string> period = files.ReadFile("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (!quota.ok() || !period.ok()) return std::nullopt;
  return QuotaCores(*quota, *period);
}

}  // namespace

std::string_view InstructionSetName(InstructionSet level) {
  switch (level) {
    case InstructionSet::kSse41:
      return "SSE41";
    case InstructionSet::kAvx:
      return "AVX";
    case InstructionSet::kAvx2:
      return "AVX2";
    case InstructionSet::kAvx2Vnni:
      return "AVX2_VNNI";
    case InstructionSet::kAvx512Core:
      return "AVX512_CORE";
    case InstructionSet::kAvx512CoreVnni:
      return "AVX512_CORE_VNNI";
    case InstructionSet::kAvx512CoreBf16:
      return "AVX512_CORE_BF16";
    case InstructionSet::kAvx512CoreAmx:
      return "AVX512_CORE_AMX";
  }
  return "unknown";
}

InstructionSet LimitInstructionSet(const std::vector<InstructionSet>& supported,
                                   std::string_view maximum) {
  InstructionSet limit = InstructionSet::kAvx512CoreAmx;
  for (int level = 0; level <= static_cast<int>(InstructionSet::kAvx512CoreAmx); ++level) {
    const std::string_view name = InstructionSetName(static_cast<InstructionSet>(level));
    if (absl::EqualsIgnoreCase(absl::string_view(maximum.data(), maximum.size()),
                               absl::string_view(name.data(), name.size()))) {
      limit = static_cast<InstructionSet>(level);
    }
  }
  InstructionSet best = InstructionSet::kSse41;
  for (const InstructionSet level : supported) {
    if (level <= limit) best = std::max(best, level);
  }
  return best;
}

InstructionSet EffectiveInstructionSet() {
  // As oneDNN does: the newer name hides the older one, unless it is empty.
  const char* maximum = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (maximum == nullptr || maximum[0] == '\0') maximum = std::getenv("DNNL_MAX_CPU_ISA");
  return LimitInstructionSet(SupportedInstructionSets(), maximum == nullptr ? "" : maximum);
}

int AvailableCores(FileSystem& files) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  int cores = 1;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
    cores = std::max(1, CPU_COUNT(&allowed));
  }
  return std::min(cores, ControlGroupCores(files).value_or(cores));
}

int ThreadBudget(int cores, int local_workers) {
  return std::max(1, cores / std::max(1, local_workers));
}

int64_t PhysicalMemoryBytes() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

}  // namespace weft
