// The memory that a program needs.
#ifndef WEFT_EXECUTOR_MEMORY_PROGRAM_MEMORY_H_
#define WEFT_EXECUTOR_MEMORY_PROGRAM_MEMORY_H_

#include <cstdint>

namespace weft {

// What one rank's compile found a program to need, in bytes, each exact. Nothing of it but the
// constants and what kernels keep is allocated before Prepare.
struct ProgramMemory {
  int64_t arena_bytes = 0;        // everything that a step makes; programs share the largest
  int64_t workspace_bytes = 0;    // of the arena: the largest scratch memory of a kernel
  int64_t lower_bound_bytes = 0;  // of the arena: the most alive at any one instruction
  int64_t variable_bytes = 0;     // all variables of the rank, not only the program's
  int64_t constant_bytes = 0;     // constants of its graphs, and copies for kernels of the host
  // Copies of constants in the memory of a device that the host cannot reach. Of those in a mapped
  // file nothing is counted for the host then.
  int64_t device_constant_bytes = 0;
  // Of the constants: those read from a mapped file where they are. No page of them is in memory
  // when the program has been compiled. A constant of such a file that was copied counts once.
  int64_t mapped_constant_bytes = 0;
  int64_t packed_bytes = 0;  // what kernels keep from run to run (Kernel::retained_bytes)
  // Host memory for a device whose memory the host cannot reach, with what kernels keep that run on
  // its host.
  int64_t staging_bytes = 0;
  // Whether the host cannot reach the device's memory: variables, arena, device_constant_bytes and
  // packed_bytes lie there, all else in the host's.
  bool on_device = false;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_MEMORY_PROGRAM_MEMORY_H_
