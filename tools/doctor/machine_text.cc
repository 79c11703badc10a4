#include "tools/doctor/machine_text.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "platform/byte_quantity.h"
#include "tensor/cuda/cuda_setup.h"
#include "tools/console/console.h"
#include "tools/console/version.h"

namespace weft {
namespace {

using DoctorJson = nlohmann::ordered_json;

// "processor  ..." with a column for the title.
std::string TitledLine(const std::string& title, const std::string& text) {
  return absl::StrFormat("%-11s%s\n", title, Printable(text));
}

std::string BytesText(int64_t bytes) { return bytes == 0 ? "?" : ByteQuantity(bytes); }
std::string LimitText(int64_t limit) { return limit < 0 ? "any" : absl::StrCat(limit); }

// Bytes per second of a card's memory: two transfers for each clock.
double MemoryBandwidth(const CudaProperties& card) {
  return 2.0 * card.memory_clock_khz * 1e3 * card.memory_bus_bits / 8;
}

std::string BuildText(const MachineReport& report) {
  std::vector<std::string> parts = {kVersion};
  parts.push_back(report.has_cuda ? absl::StrCat("CUDA ", report.driver.runtime_cuda,
                                                 " for compute capability ", kOldestCudaMajor, ".",
                                                 kOldestCudaMinor, " and later")
                                  : "no CUDA");
  for (const KernelCount& count : report.kernels) {
    parts.push_back(absl::StrCat(count.operators, " operators with kernels for ", count.device));
  }
  return absl::StrJoin(parts, ", ");
}

std::string CardText(const CardReport& card) {
  const CudaProperties& is = card.properties;
  std::string text = absl::StrCat(card.device, "  ", is.name, ", compute capability ", is.major,
                                  ".", is.minor, ", ");
  absl::StrAppend(
      &text, is.multiprocessors, " multiprocessors at ",
      absl::StrFormat("%.2f GHz, %.0f GB/s", is.clock_khz / 1e6, MemoryBandwidth(is) / 1e9), ", ",
      ByteQuantity(static_cast<int64_t>(card.free_bytes)), " of ",
      ByteQuantity(static_cast<int64_t>(is.total_bytes)), " free");
  if (!is.pci_bus.empty()) absl::StrAppend(&text, ", PCI ", is.pci_bus);
  if (is.numa_node >= 0) absl::StrAppend(&text, ", NUMA node ", is.numa_node);
  if (is.has_ecc) absl::StrAppend(&text, ", ECC");
  if (!card.reaches.empty()) {
    absl::StrAppend(&text, ", reaches ", absl::StrJoin(card.reaches, " "));
  }
  if (!card.problem.empty()) absl::StrAppend(&text, ": cannot be used");
  return text;
}

std::string MachineCudaText(const MachineReport& report) {
  const DriverReport& driver = report.driver;
  std::string text = TitledLine(
      "driver", driver.driver_cuda.empty()
                    ? (driver.kernel_module.empty() ? "none" : driver.kernel_module)
                    : absl::StrCat(driver.kernel_module.empty() ? "NVIDIA" : driver.kernel_module,
                                   ", for CUDA ", driver.driver_cuda));
  for (size_t i = 0; i < report.libraries.size(); ++i) {
    const LibraryReport& library = report.libraries[i];
    text += TitledLine(i == 0 ? "libraries" : "",
                       library.problem.empty()
                           ? absl::StrCat(library.name, " ", library.version, "  ", library.path)
                           : absl::StrCat(library.name, ": cannot be used"));
  }
  return text;
}

DoctorJson CardJson(const CardReport& card) {
  const CudaProperties& is = card.properties;
  return {{"device", card.device},
          {"name", is.name},
          {"compute_capability", absl::StrCat(is.major, ".", is.minor)},
          {"multiprocessors", is.multiprocessors},
          {"clock_khz", is.clock_khz},
          {"memory_clock_khz", is.memory_clock_khz},
          {"memory_bytes_per_second", MemoryBandwidth(is)},
          {"memory_bytes", is.total_bytes},
          {"free_bytes", card.free_bytes},
          {"pci_bus", is.pci_bus},
          {"numa_node", is.numa_node},
          {"ecc", is.has_ecc},
          {"reaches", card.reaches},
          {"problem", card.problem}};
}

}  // namespace

std::string MachineText(const MachineReport& report) {
  std::string text = TitledLine("build", BuildText(report));
  const ProcessorReport& processor = report.processor;
  text += TitledLine(
      "processor",
      absl::StrCat(processor.model.empty() ? "unknown" : processor.model, ", ", processor.cores,
                   processor.cores == 1 ? " core, " : " cores, ", processor.instruction_set, ", ",
                   processor.numa_nodes, processor.numa_nodes == 1 ? " NUMA node" : " NUMA nodes"));
  const MemoryReport& memory = report.memory;
  text +=
      TitledLine("memory", absl::StrCat(BytesText(memory.total), ", ", BytesText(memory.available),
                                        " available, limit ", BytesText(memory.limit), " (",
                                        memory.limit_source, ")"));
  text += TitledLine("huge pages", absl::StrCat("transparent: ",
                                                memory.transparent_huge_pages.empty()
                                                    ? "unknown"
                                                    : memory.transparent_huge_pages,
                                                ", ", memory.reserved_huge_pages, " reserved"));
  text += TitledLine(
      "limits", absl::StrCat(LimitText(report.limits.open_files), " open files, ",
                             LimitText(report.limits.locked_bytes), " bytes of locked memory"));
  for (const FolderReport& folder : report.folders) {
    text += TitledLine("files", absl::StrCat(folder.purpose, ": ", folder.path,
                                             folder.exists ? "" : " (not there yet)"));
  }
  text += MachineCudaText(report);
  text += TitledLine("devices", "cpu:0");
  for (const CardReport& card : report.cards) text += TitledLine("", CardText(card));
  if (report.problems.empty()) return text + "\nno problems\n";
  text += absl::StrCat("\n", report.problems.size(),
                       report.problems.size() == 1 ? " problem:\n" : " problems:\n");
  for (size_t i = 0; i < report.problems.size(); ++i) {
    absl::StrAppend(&text, "  ", i + 1, ". ", Printable(report.problems[i]), "\n");
  }
  return text;
}

std::string MachineJson(const MachineReport& report) {
  DoctorJson kernels = DoctorJson::object();
  for (const KernelCount& count : report.kernels) kernels[count.device] = count.operators;
  DoctorJson libraries = DoctorJson::array();
  for (const LibraryReport& library : report.libraries) {
    libraries.push_back({{"name", library.name},
                         {"version", library.version},
                         {"path", library.path},
                         {"problem", library.problem}});
  }
  DoctorJson devices = DoctorJson::array();
  devices.push_back({{"device", "cpu:0"}, {"name", report.processor.model}, {"problem", ""}});
  for (const CardReport& card : report.cards) {
    devices.push_back(CardJson(card));
  }
  DoctorJson folders = DoctorJson::array();
  for (const FolderReport& folder : report.folders) {
    folders.push_back(
        {{"purpose", folder.purpose}, {"path", folder.path}, {"exists", folder.exists}});
  }
  const ProcessorReport& processor = report.processor;
  const MemoryReport& memory = report.memory;
  const DoctorJson json = {
      {"version", kVersion},
      {"cuda", report.has_cuda},
      {"kernels", kernels},
      {"processor",
       {{"model", processor.model},
        {"cores", processor.cores},
        {"numa_nodes", processor.numa_nodes},
        {"instruction_set", processor.instruction_set}}},
      {"memory",
       {{"total_bytes", memory.total},
        {"available_bytes", memory.available},
        {"limit_bytes", memory.limit},
        {"limit_source", memory.limit_source},
        {"transparent_huge_pages", memory.transparent_huge_pages},
        {"reserved_huge_pages", memory.reserved_huge_pages}}},
      {"limits",
       {{"open_files", report.limits.open_files}, {"locked_bytes", report.limits.locked_bytes}}},
      {"folders", folders},
      {"driver",
       {{"cuda", report.driver.driver_cuda},
        {"runtime_cuda", report.driver.runtime_cuda},
        {"kernel_module", report.driver.kernel_module}}},
      {"libraries", libraries},
      {"devices", devices},
      {"problems", report.problems}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace weft
