// What this machine and this build have for a job, and what is wrong with them.
#ifndef WEFT_TOOLS_DOCTOR_MACHINE_REPORT_H_
#define WEFT_TOOLS_DOCTOR_MACHINE_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/cpu_info.h"
#include "platform/file_system.h"
#include "tensor/cuda/cuda_runtime.h"
#include "tensor/cuda/library_opener.h"

namespace weft {

// Where a report comes from; borrowed. Tests give fakes.
struct MachineSources {
  FileSystem* files = nullptr;                                 // /proc, /sys, /dev
  absl::StatusOr<CudaRuntime*> cuda = absl::UnknownError("");  // an error: not in this build
  LibraryOpener* libraries = nullptr;
  InstructionSet instruction_set = InstructionSet::kSse41;
};

// The machine's own.
MachineSources SystemSources();

struct ProcessorReport {
  std::string model;  // "" where the system does not say
  int cores = 0;      // that this process may use
  int numa_nodes = 1;
  std::string instruction_set;  // that oneDNN uses: "AVX512_CORE_BF16"
};

// Bytes; 0 = not known.
struct MemoryReport {
  int64_t total = 0;
  int64_t available = 0;
  int64_t limit = 0;  // of this process
  std::string limit_source;
  int64_t reserved_huge_pages = 0;     // in pages
  std::string transparent_huge_pages;  // "always", "madvise", "never" or ""
};

// The soft ones; -1 = none, or not known.
struct LimitReport {
  int64_t open_files = -1;
  int64_t locked_bytes = -1;
};

struct DriverReport {
  // Of CUDA, "13.0"; "" where there is none.
  std::string driver_cuda;    // up to which the driver goes
  std::string runtime_cuda;   // in this build
  std::string kernel_module;  // "580.65.06", of /proc/driver/nvidia/version
};

struct LibraryReport {
  std::string name;
  std::string version;  // "" where it cannot be used
  std::string path;
  std::string problem;
};

struct CardReport {
  std::string device;  // "cuda:0"
  CudaProperties properties;
  size_t free_bytes = 0;
  std::vector<std::string> reaches;  // devices whose memory it reads and writes itself
  std::string problem;               // "": it can be used
};

// Operators of this build with a kernel of their own for a device.
struct KernelCount {
  std::string device;  // "cpu", "cuda"
  int operators = 0;
};

struct FolderReport {
  std::string purpose;
  std::string path;
  bool exists = false;
};

struct MachineReport {
  bool has_cuda = false;  // this build
  std::vector<KernelCount> kernels;
  ProcessorReport processor;
  MemoryReport memory;
  LimitReport limits;
  DriverReport driver;
  std::vector<LibraryReport> libraries;
  std::vector<CardReport> cards;
  std::vector<FolderReport> folders;
  // What is wrong, each with what to do.
  std::vector<std::string> problems;

  // Whether the device can be used: "cpu", "cuda" (any card) or "cuda:1".
  bool Has(const std::string& device) const;
};

// Looks at everything once. Sets up each card to learn how much of its memory is free, which takes
// seconds and some hundred MiB of it until the process ends.
MachineReport ExamineMachine(const MachineSources& sources);

}  // namespace weft

#endif  // WEFT_TOOLS_DOCTOR_MACHINE_REPORT_H_
