// What NVIDIA's assembler says of compiled kernels, and how many of their threads a GPU runs at
// once. Needs no GPU.
#ifndef WEFT_OPS_TESTING_COMPILED_PTXAS_REPORT_H_
#define WEFT_OPS_TESTING_COMPILED_PTXAS_REPORT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace weft::testing {

// One kernel in the machine code of one architecture. Sizes are in bytes.
struct CompiledKernel {
  // Of a launch of ops/kernels/cuda/language/launch.h: its body with the parameters of the template
  // ("AddBody<float, 4>"), without weft's own namespaces. Of another kernel: its declaration.
  std::string name;
  int architecture = 0;      // 80 for sm_80.
  int max_threads = 0;       // Of a block: the first parameter of Launch. 0: unknown.
  int registers = 0;         // Of a thread.
  int64_t shared_bytes = 0;  // Of a block; without DynamicShared.
  int64_t stack_bytes = 0;   // Of a thread, in memory, with the functions that it calls.
  int64_t spill_bytes = 0;   // Stores and loads of registers that did not fit, in instructions.
};

// Reads what `ptxas -v` prints: kernels in their order. InvalidArgument with the line where the
// text has another form, or where a kernel lacks its registers.
absl::StatusOr<std::vector<CompiledKernel>> ReadPtxasReport(std::string_view text);

// What a multiprocessor has. All GPUs below have 65,536 registers on each, in four parts, give them
// out to warps by 256, and shared memory to blocks by 128 bytes, with 1 KiB more for each block.
// Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability";
// cuda_occupancy.h of the toolkit for the grains.
struct Multiprocessor {
  const char* gpus;
  int major = 0;  // Compute capability.
  int minor = 0;
  int max_threads = 0;
  int max_blocks = 0;
  int64_t shared_bytes = 0;
};

// Those that this project's machine code runs on, by compute capability.
const std::vector<Multiprocessor>& Multiprocessors();

// How many blocks of a kernel a multiprocessor has at the same time; 0 where it cannot run one.
// REQUIRES: 1 <= threads <= 1024, registers >= 1.
int ResidentBlocks(const Multiprocessor& multiprocessor, int threads, int registers,
                   int64_t shared_bytes);

// The part of the threads of a multiprocessor that a kernel can occupy, from 0 to 1.
double Occupancy(const Multiprocessor& multiprocessor, int threads, int registers,
                 int64_t shared_bytes);

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_COMPILED_PTXAS_REPORT_H_
