// What the operating system says of this process's memory: how much it has, had at most, and may
// have.
#ifndef WEFT_PLATFORM_PROCESS_MEMORY_H_
#define WEFT_PLATFORM_PROCESS_MEMORY_H_

#include <cstdint>
#include <string>

#include "platform/file_system.h"

namespace weft {

// In bytes; 0 = not known.
struct ProcessMemory {
  int64_t bytes = 0;       // now
  int64_t peak_bytes = 0;  // most since the process, or its control group, began
  // Whether this is what the process's own control group is charged: then page tables, sockets and
  // the file pages that it was the first to touch are in it. Else it is the resident size.
  bool of_control_group = false;
  // Most that the job had allocated on the worker's device, where that has memory of its own.
  // Filled in by who has the device.
  int64_t device_peak_bytes = 0;
};

// Of the process's memory control group (version 1 or 2) when it is alone in one, since a limit
// counts that; else VmRSS and VmHWM of /proc/self/status. `files` reads /proc and /sys.
ProcessMemory MeasureProcessMemory(FileSystem& files);

// Begins the peak of the resident size (not that of a control group) anew, where the system allows:
// what came before, such as the import of a model, is not part of it.
void ForgetPeakMemory();

// The memory that a process may use, and who says so. Bytes.
struct MemoryLimit {
  int64_t bytes = 0;
  // "control group /sys/fs/cgroup/memory/jobs" or "this machine's memory". Processes of one machine
  // with the same source share the limit.
  std::string source;
};

// The least of the limits of the process's control group, of those above it, and the machine's
// physical memory.
MemoryLimit ProcessMemoryLimit(FileSystem& files);

// Makes the C library give freed memory back at once (blocks of 256 KiB and more are mapped by
// themselves) and serve all threads from two heaps, so that what a process holds is what it uses.
// Before the first thread is started.
void KeepHeapSmall();

// Gives the free pages of the heaps back to the system. Takes milliseconds.
void ReleaseFreeMemory();

}  // namespace weft

#endif  // WEFT_PLATFORM_PROCESS_MEMORY_H_
