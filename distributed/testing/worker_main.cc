// The worker process of the tests: worker_main worker --listen ADDRESS --ends-with-parent PID
// --token-file FILE (without: kTestToken) --join ADDRESS.
// WEFT_TEST_VERSION is its version, "test" by default; WEFT_TEST_SILENT=1: never listen;
// WEFT_TEST_LATE="/1": whose address ends so listens three seconds late; WEFT_TEST_KEEP="60": how
// many seconds it keeps the state of a job whose coordinator is lost.
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/time/time.h"
#include "distributed/job_token.h"
#include "distributed/process/worker_process.h"
#include "distributed/testing/sum_job.h"
#include "platform/process.h"
#include "tensor/cpu_device.h"

int main(int argc, char** argv) {
  weft::WorkerProcessOptions options;
  options.version = getenv("WEFT_TEST_VERSION") != nullptr ? getenv("WEFT_TEST_VERSION") : "test";
  options.open_input = [](weft::FileSystem&) -> weft::InputSourceFactory {
    return weft::testing::OpenSumJobInput;
  };
  options.token = weft::testing::kTestToken;
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--listen") options.listen = argv[i + 1];
    if (flag == "--join") options.join = argv[i + 1];
    if (flag == "--token-file") options.token = weft::ReadTokenFile(argv[i + 1]).value_or("");
    int64_t parent = 0;
    if (flag == "--ends-with-parent" && absl::SimpleAtoi(argv[i + 1], &parent)) {
      if (!weft::DieWithParent(parent).ok()) return 1;
      options.ends_with_coordinator = true;
    }
  }
  int64_t keep = 0;
  if (getenv("WEFT_TEST_KEEP") != nullptr && absl::SimpleAtoi(getenv("WEFT_TEST_KEEP"), &keep)) {
    options.keep_state = absl::Seconds(keep);
  }
  if (getenv("WEFT_TEST_SILENT") != nullptr) pause();
  const char* const late = getenv("WEFT_TEST_LATE");
  if (late != nullptr && absl::EndsWith(options.listen, late)) sleep(3);
  const std::unique_ptr<weft::Device> device = weft::NewCpuDevice({});
  options.device = device.get();
  const absl::Status status = weft::ServeWorker(options);
  if (!status.ok()) std::cerr << "worker: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
