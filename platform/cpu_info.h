// The processor: instruction set, cores, threads to use, memory.
#ifndef WEFT_PLATFORM_CPU_INFO_H_
#define WEFT_PLATFORM_CPU_INFO_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "platform/file_system.h"

namespace weft {

// Levels of the x86-64 instruction set as oneDNN tells them apart, from small to large.
enum class InstructionSet {
  kSse41,
  kAvx,
  kAvx2,
  kAvx2Vnni,
  kAvx512Core,
  kAvx512CoreVnni,
  kAvx512CoreBf16,
  kAvx512CoreAmx,
};

// The name that DNNL_MAX_CPU_ISA takes: "AVX2", "AVX512_CORE", ...
std::string_view InstructionSetName(InstructionSet level);

// The largest of the levels `supported` (never empty) that the text of DNNL_MAX_CPU_ISA allows.
// Like oneDNN it ignores case, and a text that it does not know counts as no limit.
InstructionSet LimitInstructionSet(const std::vector<InstructionSet>& supported,
                                   std::string_view maximum);

// What oneDNN uses in this process: the processor's largest level within ONEDNN_MAX_CPU_ISA or,
// where that is not set, DNNL_MAX_CPU_ISA. Results are equal bit for bit only between processes
// with the same level; the handshake compares it.
InstructionSet EffectiveInstructionSet();

// Cores that this process may use: its affinity mask, cut down to the CPU quota of its control
// group (version 1 or 2, read through `files`). At least 1.
int AvailableCores(FileSystem& files);

// Threads for each of `local_workers` processes that share `cores`: at least 1, never
// oversubscribed while there are cores for all. Zero or fewer workers count as one.
int ThreadBudget(int cores, int local_workers);

// Bytes of physical memory of this machine.
int64_t PhysicalMemoryBytes();

}  // namespace weft

#endif  // WEFT_PLATFORM_CPU_INFO_H_
