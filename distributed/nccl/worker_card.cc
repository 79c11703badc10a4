#include "distributed/nccl/worker_card.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "distributed/nccl/nccl_library.h"
#include "tensor/cuda/cuda_device.h"
#include "tensor/cuda/cuda_setup.h"
#include "tensor/cuda/driver_version.h"

namespace weft {
namespace {

// The same in all containers of a machine, and another after each start of it.
constexpr char kBootId[] = "/proc/sys/kernel/random/boot_id";

std::string MachineName(FileSystem& files) {
  const absl::StatusOr<std::string> boot = files.ReadFile(kBootId);
  if (boot.ok()) return std::string(absl::StripAsciiWhitespace(*boot));
  char host[256] = {};
  return gethostname(host, sizeof(host) - 1) == 0 ? host : "";
}

}  // namespace

WorkerCard CardOf(Device& device, FileSystem& files) {
  const auto* const cuda = dynamic_cast<const CudaDevice*>(&device);
  if (cuda == nullptr) return {};
  WorkerCard card;
  card.name = absl::StrCat(MachineName(files), "/", cuda->properties().pci_bus);
  card.text = CudaCardText(cuda->properties());
  card.driver = NvidiaDriverVersion(files);
  const absl::StatusOr<Nccl*> nccl = SystemNccl();
  if (nccl.ok()) {
    card.nccl = *nccl;
  } else {
    card.problem = std::string(nccl.status().message());
  }
  return card;
}

}  // namespace weft
