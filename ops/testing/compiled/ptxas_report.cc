#include "ops/testing/compiled/ptxas_report.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace weft::testing {
namespace {

constexpr int kWarpThreads = 32;
constexpr int kRegisters = 65536;
constexpr int kParts = 4;  // of a multiprocessor, each with its registers and warps
constexpr int kRegisterGrain = 256;
constexpr int kMaxRegistersOfThread = 255;
constexpr int64_t kSharedGrain = 128;
constexpr int64_t kReservedShared = 1024;  // of each block

int64_t RoundUp(int64_t value, int64_t grain) { return (value + grain - 1) / grain * grain; }

std::string Demangled(const std::string& symbol) {
  int code = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &code), std::free);
  return code == 0 ? name.get() : symbol;
}

// Takes the name and the threads from "void weft::cuda::RunBody<256, weft::cuda::Body>(weft::...)".
void Name(const std::string& symbol, CompiledKernel& kernel) {
  constexpr absl::string_view kBegin = "void weft::cuda::RunBody<";
  const std::string whole = Demangled(symbol);
  kernel.name = whole;
  absl::string_view rest = whole;
  if (!absl::ConsumePrefix(&rest, kBegin)) return;
  const size_t comma = rest.find(", ");
  if (comma == absl::string_view::npos) return;
  if (!absl::SimpleAtoi(rest.substr(0, comma), &kernel.max_threads)) return;
  rest.remove_prefix(comma + 2);
  // Up to the end of the template's parameters.
  int depth = 1;
  size_t end = 0;
  for (; end < rest.size() && depth > 0; ++end) {
    depth += rest[end] == '<' || rest[end] == '(';
    depth -= rest[end] == '>' || rest[end] == ')';
  }
  kernel.name = std::string(absl::StripTrailingAsciiWhitespace(rest.substr(0, end - 1)));
  absl::StrReplaceAll({{"weft::cuda::", ""}, {"weft::", ""}, {"(anonymous namespace)::", ""}},
                      &kernel.name);
}

// The number before `what` in "Used 18 registers, 128 bytes smem"; nothing where `what` is not.
std::optional<int64_t> NumberBefore(absl::string_view line, absl::string_view what) {
  const size_t at = line.find(absl::StrCat(" ", what));
  if (at == absl::string_view::npos) return std::nullopt;
  const absl::string_view before = line.substr(0, at);
  const size_t begin = before.find_last_not_of("0123456789") + 1;  // npos + 1 is 0
  int64_t number = 0;
  if (!absl::SimpleAtoi(before.substr(begin), &number)) return std::nullopt;
  return number;
}

// What stands between two quotes at `line`'s end: "... 'A' for 'sm_80'".
struct Entry {
  std::string symbol;
  int architecture = 0;
};

std::optional<Entry> ReadEntry(absl::string_view line) {
  const std::vector<absl::string_view> parts = absl::StrSplit(line, '\'');
  if (parts.size() != 5) return std::nullopt;
  absl::string_view architecture = parts[3];
  Entry entry{std::string(parts[1])};
  if (!absl::ConsumePrefix(&architecture, "sm_")) return std::nullopt;
  while (!architecture.empty() && architecture.back() >= 'a') architecture.remove_suffix(1);
  if (!absl::SimpleAtoi(architecture, &entry.architecture)) return std::nullopt;
  return entry;
}

}  // namespace

absl::StatusOr<std::vector<CompiledKernel>> ReadPtxasReport(std::string_view text) {
  std::vector<CompiledKernel> kernels;
  int number = 0;
  const auto fault = [&number](absl::string_view line, absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", number, " of the report of ptxas: ", what, ": ", line));
  };
  for (absl::string_view line : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++number;
    if (absl::StrContains(line, "Compiling entry function")) {
      if (!kernels.empty() && kernels.back().registers == 0) {
        return fault(line, absl::StrCat("no registers are given of ", kernels.back().name));
      }
      const std::optional<Entry> entry = ReadEntry(line);
      if (!entry.has_value()) return fault(line, "expected 'KERNEL' for 'sm_NUMBER'");
      CompiledKernel& kernel = kernels.emplace_back();
      Name(entry->symbol, kernel);
      kernel.architecture = entry->architecture;
      continue;
    }
    const bool has_stack = absl::StrContains(line, "bytes stack frame");
    const bool has_registers = absl::StrContains(line, ": Used ");
    if (!has_stack && !has_registers) continue;
    if (kernels.empty()) return fault(line, "no kernel was named before");
    CompiledKernel& kernel = kernels.back();
    if (has_stack) {  // of the kernel, or of a function that it calls
      const std::optional<int64_t> stack = NumberBefore(line, "bytes stack frame");
      const std::optional<int64_t> stores = NumberBefore(line, "bytes spill stores");
      const std::optional<int64_t> loads = NumberBefore(line, "bytes spill loads");
      if (!stack || !stores || !loads) return fault(line, "expected stack, spill stores and loads");
      kernel.stack_bytes = std::max(kernel.stack_bytes, *stack);
      kernel.spill_bytes += *stores + *loads;
      continue;
    }
    const std::optional<int64_t> registers = NumberBefore(line, "registers");
    if (!registers) return fault(line, "expected registers");
    kernel.registers = static_cast<int>(*registers);
    kernel.shared_bytes = NumberBefore(line, "bytes smem").value_or(0);
    kernel.stack_bytes =
        std::max(kernel.stack_bytes, NumberBefore(line, "bytes cumulative stack size").value_or(0));
  }
  if (!kernels.empty() && kernels.back().registers == 0) {
    return fault("", absl::StrCat("no registers are given of ", kernels.back().name));
  }
  return kernels;
}

const std::vector<Multiprocessor>& Multiprocessors() {
  static const auto* const table = new std::vector<Multiprocessor>{
      {"A100, A30", 8, 0, 2048, 32, 164 << 10},
      {"A10, A40, RTX 30", 8, 6, 1536, 16, 100 << 10},
      {"L4, L40, RTX 40", 8, 9, 1536, 24, 100 << 10},
      {"H100, H200", 9, 0, 2048, 32, 228 << 10},
      {"B200", 10, 0, 2048, 32, 228 << 10},
  };
  return *table;
}

int ResidentBlocks(const Multiprocessor& multiprocessor, int threads, int registers,
                   int64_t shared_bytes) {
  const int64_t warps = (threads + kWarpThreads - 1) / kWarpThreads;
  const int64_t registers_of_warp = RoundUp(int64_t{registers} * kWarpThreads, kRegisterGrain);
  // A launch is refused where its registers do not fit with the same warps in each part.
  if (registers > kMaxRegistersOfThread ||
      registers_of_warp * RoundUp(warps, kParts) > kRegisters) {
    return 0;
  }
  const int64_t shared = RoundUp(shared_bytes + kReservedShared, kSharedGrain);
  const int64_t by_registers = kRegisters / kParts / registers_of_warp * kParts / warps;
  const int64_t by_threads = multiprocessor.max_threads / kWarpThreads / warps;
  const int64_t by_shared = multiprocessor.shared_bytes / shared;
  return static_cast<int>(
      std::min({by_registers, by_threads, by_shared, int64_t{multiprocessor.max_blocks}}));
}

double Occupancy(const Multiprocessor& multiprocessor, int threads, int registers,
                 int64_t shared_bytes) {
  const int64_t warps = (threads + kWarpThreads - 1) / kWarpThreads;
  const int64_t resident =
      ResidentBlocks(multiprocessor, threads, registers, shared_bytes) * warps * kWarpThreads;
  return static_cast<double>(resident) / multiprocessor.max_threads;
}

}  // namespace weft::testing
