// A worker process with a fault: as `graph_runner worker --listen ADDRESS --ends-with-parent PID
// --token-file FILE`, but its transport has the faults of WEFT_TRANSPORT_FAULTS
// (ParseTransportFaults).
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "distributed/job_token.h"
#include "distributed/process/worker_process.h"
#include "distributed/testing/fault_injecting_transport.h"
#include "platform/file_system.h"
#include "platform/process.h"
#include "tensor/cpu_device.h"
#include "tools/console/version.h"
#include "training/job/job.h"

int main(int argc, char** argv) {
  weft::WorkerProcessOptions options;
  options.version = weft::kVersion;
  options.open_input = [](weft::FileSystem& files) { return weft::NewDataSetFactory(files); };
  options.data_roots = {"/"};
  options.checkpoint_roots = {"/"};
  options.device = &weft::CpuDevice();
  options.ends_with_coordinator = true;
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--listen") options.listen = argv[i + 1];
    if (flag == "--token-file") options.token = weft::ReadTokenFile(argv[i + 1]).value_or("");
    int64_t parent = 0;
    if (flag == "--ends-with-parent" && absl::SimpleAtoi(argv[i + 1], &parent)) {
      if (!weft::DieWithParent(parent).ok()) return 1;
    }
  }
  const char* const text = std::getenv("WEFT_TRANSPORT_FAULTS");
  const auto faults = weft::testing::ParseTransportFaults(text == nullptr ? "" : text);
  if (!faults.ok()) {
    std::cerr << faults.status().message() << "\n";
    return 1;
  }
  options.decorate_transport = [&](std::unique_ptr<weft::Transport> transport) {
    return std::make_unique<weft::testing::FaultInjectingTransport>(std::move(transport), *faults);
  };
  const absl::Status status = weft::ServeWorker(options);
  if (!status.ok()) std::cerr << "worker: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
