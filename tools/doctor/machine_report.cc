#include "tools/doctor/machine_report.h"

#include <algorithm>
#include <memory>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "distributed/job_token.h"
#include "graph/op_schema.h"
#include "ops/op_support.h"
#include "platform/process_memory.h"
#include "tensor/cuda/cuda_libraries.h"
#include "tensor/cuda/cuda_setup.h"
#include "tensor/cuda/driver_version.h"
#include "tensor/device.h"

namespace weft {
namespace {

constexpr int64_t kFewOpenFiles = 1024;

std::string TextOf(FileSystem& files, const std::string& path) {
  return files.ReadFile(path).value_or("");
}

// What stands after `key` and a colon in a line of /proc; "" where there is none.
std::string ValueOf(const std::string& text, absl::string_view key) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, key)) continue;
    line = absl::StripLeadingAsciiWhitespace(line);
    if (!absl::ConsumePrefix(&line, ":")) continue;
    return std::string(absl::StripAsciiWhitespace(line));
  }
  return "";
}

// A number of /proc/meminfo, "16303428 kB" or "0".
int64_t NumberOf(const std::string& text, absl::string_view key) {
  const std::string value = ValueOf(text, key);
  int64_t number = 0;
  if (!absl::SimpleAtoi(value.substr(0, value.find(' ')), &number)) return 0;
  return absl::EndsWith(value, " kB") ? number * 1024 : number;
}

// A soft limit of /proc/self/limits.
int64_t LimitOf(const std::string& text, absl::string_view name) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, name)) continue;
    line = absl::StripLeadingAsciiWhitespace(line);
    int64_t number = -1;
    return absl::SimpleAtoi(line.substr(0, line.find(' ')), &number) ? number : -1;
  }
  return -1;
}

ProcessorReport ExamineProcessor(const MachineSources& sources) {
  ProcessorReport report;
  report.model = ValueOf(TextOf(*sources.files, "/proc/cpuinfo"), "model name");
  report.cores = AvailableCores(*sources.files);
  report.instruction_set = std::string(InstructionSetName(sources.instruction_set));
  const auto has_node = [&](int node) {
    return sources.files->Exists(absl::StrCat("/sys/devices/system/node/node", node, "/cpulist"));
  };
  while (has_node(report.numa_nodes)) ++report.numa_nodes;
  return report;
}

MemoryReport ExamineMemory(FileSystem& files) {
  MemoryReport report;
  const std::string text = TextOf(files, "/proc/meminfo");
  report.total = NumberOf(text, "MemTotal");
  report.available = NumberOf(text, "MemAvailable");
  report.reserved_huge_pages = NumberOf(text, "HugePages_Total");
  const MemoryLimit limit = ProcessMemoryLimit(files);
  report.limit = limit.bytes;
  report.limit_source = limit.source;
  const std::string modes = TextOf(files, "/sys/kernel/mm/transparent_hugepage/enabled");
  const size_t begin = modes.find('[');
  const size_t end = modes.find(']');
  if (begin != std::string::npos && end != std::string::npos && begin < end) {
    report.transparent_huge_pages = modes.substr(begin + 1, end - begin - 1);
  }
  return report;
}

DriverReport ExamineDriver(CudaRuntime& cuda) {
  DriverReport report;
  int version = 0;
  if (cuda.RuntimeVersion(&version) == CudaCode::kSuccess) {
    report.runtime_cuda = CudaVersionText(version);
  }
  if (cuda.DriverVersion(&version) == CudaCode::kSuccess && version > 0) {
    report.driver_cuda = CudaVersionText(version);
  }
  return report;
}

LibraryReport ExamineLibrary(CudaLibraryKind kind, LibraryOpener& opener) {
  LibraryReport report;
  report.name = std::string(CudaLibraryName(kind));
  const auto library = CudaLibrary::Open(kind, opener);
  if (library.ok()) {
    report.version = (*library)->version();
    report.path = (*library)->path();
  } else {
    report.problem = std::string(library.status().message());
  }
  return report;
}

CardReport ExamineCard(CudaRuntime& cuda, const CudaCard& card, int cards) {
  CardReport report;
  report.device = card.device;
  (void)cuda.Properties(card.number, &report.properties);
  const auto set_up = SetUpCudaCard(cuda, card);
  if (!set_up.ok()) {
    report.problem = std::string(set_up.status().message());
    return report;
  }
  size_t total = 0;
  (void)cuda.MemoryInfo(&report.free_bytes, &total);
  for (int peer = 0; peer < cards; ++peer) {
    bool can = false;
    if (peer == card.number) continue;
    if (cuda.CanAccessPeer(card.number, peer, &can) == CudaCode::kSuccess && can) {
      report.reaches.push_back(absl::StrCat("cuda:", peer));
    }
  }
  return report;
}

// Driver, cards and libraries, with their problems.
void ExamineCuda(const MachineSources& sources, MachineReport& report) {
  CudaRuntime& cuda = **sources.cuda;
  const std::string module = report.driver.kernel_module;
  report.driver = ExamineDriver(cuda);
  report.driver.kernel_module = module;
  for (const CudaLibraryKind kind : kCudaLibraries) {
    report.libraries.push_back(ExamineLibrary(kind, *sources.libraries));
  }
  CudaCard card{0, "cuda:0", {}};
  const std::string visible = sources.libraries->Environment("CUDA_VISIBLE_DEVICES");
  if (!visible.empty()) card.visible_devices = visible;
  const auto count = CountCudaCards(cuda, card);
  if (!count.ok()) {
    report.problems.emplace_back(count.status().message());
    return;  // Without a card nobody misses a library.
  }
  for (card.number = 0; card.number < *count; ++card.number) {
    card.device = absl::StrCat("cuda:", card.number);
    report.cards.push_back(ExamineCard(cuda, card, *count));
    const std::string& problem = report.cards.back().problem;
    if (!problem.empty()) report.problems.push_back(problem);
  }
  for (const LibraryReport& library : report.libraries) {
    if (!library.problem.empty()) report.problems.push_back(library.problem);
  }
}

void FindProblems(const MachineSources& sources, MachineReport& report) {
  if (!report.has_cuda && !report.driver.kernel_module.empty()) {
    report.problems.push_back(
        absl::StrCat("there is an NVIDIA driver (", report.driver.kernel_module,
                     "), but this build has no CUDA; use one that was made with --config=cuda"));
  }
  if (sources.instruction_set < InstructionSet::kAvx2) {
    report.problems.push_back(absl::StrCat(
        "CPU kernels use ", report.processor.instruction_set,
        " alone and are slow; take a processor with AVX2, or unset DNNL_MAX_CPU_ISA and ",
        "ONEDNN_MAX_CPU_ISA"));
  }
  if (report.limits.open_files >= 0 && report.limits.open_files < kFewOpenFiles) {
    report.problems.push_back(
        absl::StrCat("a process may open ", report.limits.open_files,
                     " files, too few for a data set of many; raise it with 'ulimit -n 65536'"));
  }
  if (report.memory.transparent_huge_pages == "never") {
    report.problems.emplace_back(
        "transparent huge pages are off, so that large tensors are slower; 'echo madvise > "
        "/sys/kernel/mm/transparent_hugepage/enabled' as root turns them on");
  }
}

std::vector<KernelCount> CountKernels() {
  KernelCount cpu{"cpu", 0};
  KernelCount cuda{"cuda", 0};
  for (const OpSchema* schema : OpRegistry::Global().All()) {
    if (schema->op_class() != OpClass::kCompute) continue;
    cpu.operators += RunSupportOf(*schema, DeviceKind::kCpu) == RunSupport::kKernel ? 1 : 0;
    cuda.operators += RunSupportOf(*schema, DeviceKind::kCuda) == RunSupport::kKernel ? 1 : 0;
  }
  return {cpu, cuda};
}

}  // namespace

MachineSources SystemSources() {
  MachineSources sources;
  sources.files = &RealFileSystem();
  sources.cuda = SystemCudaRuntime();
  sources.libraries = &SystemLibraryOpener();
  sources.instruction_set = EffectiveInstructionSet();
  return sources;
}

bool MachineReport::Has(const std::string& device) const {
  if (device == "cpu" || device == "cpu:0") return true;
  return std::any_of(cards.begin(), cards.end(), [&](const CardReport& card) {
    return card.problem.empty() && (device == "cuda" || device == card.device);
  });
}

MachineReport ExamineMachine(const MachineSources& sources) {
  MachineReport report;
  report.has_cuda = sources.cuda.ok();
  report.kernels = CountKernels();
  report.processor = ExamineProcessor(sources);
  report.memory = ExamineMemory(*sources.files);
  const std::string limits = TextOf(*sources.files, "/proc/self/limits");
  report.limits.open_files = LimitOf(limits, "Max open files");
  report.limits.locked_bytes = LimitOf(limits, "Max locked memory");
  report.driver.kernel_module = NvidiaDriverVersion(*sources.files);
  if (const auto token = DefaultTokenFile(); token.ok()) {
    report.folders.push_back({"token of jobs", *token, sources.files->Exists(*token)});
  }
  if (report.has_cuda) ExamineCuda(sources, report);
  FindProblems(sources, report);
  return report;
}

}  // namespace weft
