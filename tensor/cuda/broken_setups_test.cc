// Broken set-ups of a machine, each with all that its user reads.
#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/cuda/cuda_libraries.h"
#include "tensor/cuda/cuda_setup.h"
#include "tensor/testing/fake_cuda_runtime.h"
#include "tensor/testing/fake_library_opener.h"

namespace weft::testing {
namespace {

struct BrokenSetup {
  std::string what;
  std::function<absl::Status()> set_up;
  absl::StatusCode code;
  std::string message;
};

// `change` the machine of one card; the card that a job asks for.
std::function<absl::Status()> Card(const std::function<void(FakeCudaOptions&)>& change,
                                   const std::string& failing_call = "",
                                   CudaCode failure = CudaCode::kSuccess,
                                   const CudaCard& card = {0, "cuda:0", {}}) {
  return [=] {
    FakeCudaOptions options;
    change(options);
    FakeCudaRuntime runtime(options);
    if (!failing_call.empty()) runtime.Fail(failing_call, failure);
    return SetUpCudaCard(runtime, card).status();
  };
}

std::function<absl::Status()> Library(CudaLibraryKind kind,
                                      const std::function<void(FakeLibraryOpener&)>& change) {
  return [=] {
    FakeLibraryOpener opener;
    change(opener);
    return CudaLibrary::Open(kind, opener).status();
  };
}

void AsItIs(FakeCudaOptions&) {}

template <int kNumber>
int NcclVersion(int* number) {
  *number = kNumber;
  return 0;
}
template <size_t kNumber>
size_t Version() {
  return kNumber;
}
template <typename Function>
void* AddressOf(Function* function) {
  return reinterpret_cast<void*>(function);
}

std::vector<BrokenSetup> CardSetups() {
  using absl::StatusCode;
  return {
      {"no driver", Card([](auto& options) { options.driver_version = 0; }),
       StatusCode::kFailedPrecondition,
       "cuda:0 cannot be used: there is no NVIDIA driver on this machine, its library libcuda.so.1 "
       "was not found; install the driver (580 or later), and start a container with the machine's "
       "one (--gpus)"},
      {"old driver", Card([](auto& options) { options.driver_version = 12040; }),
       StatusCode::kFailedPrecondition,
       "cuda:0 cannot be used: the NVIDIA driver of this machine is made for CUDA 12.4, and this "
       "build (CUDA 13.0) needs 13.0; install a newer driver (580 or later)"},
      {"a driver that calls itself too old",
       Card(AsItIs, "DeviceCount", CudaCode::kInsufficientDriver), StatusCode::kFailedPrecondition,
       "cuda:0 cannot be used: the NVIDIA driver of this machine is made for CUDA 13.0, and this "
       "build (CUDA 13.0) needs 13.0; install a newer driver (580 or later)"},
      {"no card", Card([](auto& options) { options.cards.clear(); }),
       StatusCode::kFailedPrecondition,
       "cuda:0 is not there: the driver shows no card to this process (CUDA_VISIBLE_DEVICES is not "
       "set); see 'nvidia-smi -L', and in a container give it the cards"},
      {"hidden cards",
       Card([](auto& options) { options.cards.clear(); }, "", CudaCode::kSuccess,
            {0, "cuda:0", "-1"}),
       StatusCode::kFailedPrecondition,
       "cuda:0 is not there: the driver shows no card to this process (CUDA_VISIBLE_DEVICES is "
       "'-1'); see 'nvidia-smi -L', and in a container give it the cards"},
      {"a number out of range", Card(AsItIs, "", CudaCode::kSuccess, {3, "cuda:3", {}}),
       StatusCode::kInvalidArgument,
       "cuda:3 is not there: this process sees 1 card, cuda:0 (CUDA_VISIBLE_DEVICES is not set); "
       "name one of them"},
      {"an old architecture", Card([](auto& options) {
         options.cards[0].properties.major = 7;
         options.cards[0].properties.minor = 0;
       }),
       StatusCode::kUnimplemented,
       "cuda:0 (Fake GPU) has compute capability 7.0, and this build has kernels for 8.0 and "
       "later; "
       "use a newer card"},
      {"a card whose kernels an old driver would have to compile", Card([](auto& options) {
         options.cards[0].properties.major = 10;
         options.cards[0].properties.minor = 0;
         options.runtime_version = 13010;
       }),
       StatusCode::kFailedPrecondition,
       "cuda:0 (Fake GPU, compute capability 10.0) is newer than the machine code of this build, "
       "which ends at 9.x, and the driver, made for CUDA 13.0, cannot compile its PTX of CUDA "
       "13.1; "
       "install a driver for CUDA 13.1 or later, or build with a toolkit of at most CUDA 13.0"},
      {"a prohibited card",
       Card([](auto& options) { options.cards[0].properties.compute_mode = 2; }),
       StatusCode::kFailedPrecondition,
       "cuda:0 (Fake GPU) is in the compute mode 'prohibited'; allow it with 'nvidia-smi -i 0 -c "
       "0'"},
      {"a card that another process has",
       Card([](auto& options) { options.cards[0].properties.compute_mode = 3; }, "SetDevice",
            CudaCode::kDevicesUnavailable),
       StatusCode::kUnavailable,
       "cuda:0 (Fake GPU) is in the compute mode 'exclusive process', and another process has it; "
       "end that process, or allow several with 'nvidia-smi -i 0 -c 0'"},
      {"no memory",
       Card([](auto& options) { options.cards[0].used_by_others = (size_t{1} << 30) - 4096; },
            "SetDevice", CudaCode::kMemoryAllocation),
       StatusCode::kResourceExhausted,
       "cuda:0 (Fake GPU) has no room for CUDA's own data, some hundred MiB: 4096 of 1073741824 "
       "bytes are free; end what uses the card (see 'nvidia-smi')"},
      {"a failed card", Card(AsItIs, "SetDevice", CudaCode::kEccUncorrectable),
       StatusCode::kUnavailable,
       "cuda:0 (Fake GPU) cannot be set up: CUDA says cudaError214 (214), the text of 214; the "
       "card "
       "failed: start the process anew, and look at it with 'nvidia-smi -q'"},
      {"no fabric manager", Card(AsItIs, "SetDevice", CudaCode::kSystemNotReady),
       StatusCode::kUnavailable,
       "cuda:0 (Fake GPU) cannot be set up: CUDA says cudaError802 (802), the text of 802; start "
       "the fabric manager of the machine, or wait for it"},
  };
}

std::vector<BrokenSetup> LibrarySetups() {
  using absl::StatusCode;
  return {
      {"a library is missing",
       Library(CudaLibraryKind::kNccl,
               [](auto& opener) { opener.SetEnvironment("LD_LIBRARY_PATH", "/a"); }),
       StatusCode::kFailedPrecondition,
       "NCCL cannot be opened: looked for libnccl.so.2 in the folders of the loader "
       "(LD_LIBRARY_PATH is '/a'), /usr/local/cuda/lib64; install the package libnccl2, or set "
       "WEFT_CUDA_LIBRARIES to its folder"},
      {"a library is damaged",
       Library(CudaLibraryKind::kNccl,
               [](auto& opener) { opener.AddBroken("/usr/local/cuda/lib64/libnccl.so.2"); }),
       StatusCode::kFailedPrecondition,
       "NCCL cannot be opened: looked for libnccl.so.2 in the folders of the loader "
       "(LD_LIBRARY_PATH is not set), /usr/local/cuda/lib64 "
       "(/usr/local/cuda/lib64/libnccl.so.2: invalid ELF header); install the package libnccl2, or "
       "set WEFT_CUDA_LIBRARIES to its folder"},
      {"a library is too old",
       Library(CudaLibraryKind::kNccl,
               [](auto& opener) {
                 opener.Add("libnccl.so.2", {{"ncclGetVersion", AddressOf(&NcclVersion<21703>)}});
               }),
       StatusCode::kFailedPrecondition,
       "NCCL 2.17.3 (libnccl.so.2) is too old: expected 2.18.0 or later, before 3.0.0; install the "
       "package libnccl2, or set WEFT_CUDA_LIBRARIES to the folder of one that fits"},
      {"a library is too new",
       Library(CudaLibraryKind::kCudnn,
               [](auto& opener) {
                 opener.Add("libcudnn.so.9", {{"cudnnGetVersion", AddressOf(&Version<100100>)}});
               }),
       StatusCode::kFailedPrecondition,
       "cuDNN 10.1.0 (libcudnn.so.9) is too new: expected 9.0.0 or later, before 10.0.0; install "
       "cuDNN 9 for CUDA 13, or the package libcudnn9-cuda-13, or set WEFT_CUDA_LIBRARIES to the "
       "folder of one that fits"},
      {"a file is another library",
       Library(CudaLibraryKind::kNvrtc, [](auto& opener) { opener.Add("libnvrtc.so.13", {}); }),
       StatusCode::kFailedPrecondition,
       "NVRTC of unknown version (libnvrtc.so.13) has no function nvrtcVersion; install the CUDA "
       "toolkit, or the "
       "package cuda-nvrtc-13-0, or set WEFT_CUDA_LIBRARIES to the folder of one that has it"},
  };
}

TEST(BrokenSetups, EachSaysWhatWasFoundWhatIsNeededAndWhatToDo) {
  std::vector<BrokenSetup> setups = CardSetups();
  for (BrokenSetup& setup : LibrarySetups()) setups.push_back(std::move(setup));
  std::set<std::string> messages;
  for (const BrokenSetup& setup : setups) {
    const absl::Status status = setup.set_up();
    EXPECT_EQ(status.code(), setup.code) << setup.what << ": " << status;
    EXPECT_EQ(std::string(status.message()), setup.message) << setup.what;
    EXPECT_TRUE(messages.insert(std::string(status.message())).second) << setup.what;
  }
  EXPECT_GE(messages.size(), 12U);
}

// Machine code for the card is in the program: any driver of the major version will do.
TEST(BrokenSetups, AnOlderDriverServesACardThatTheBuildKnows) {
  EXPECT_EQ(Card([](auto& options) { options.runtime_version = 13010; })(), absl::OkStatus());
  EXPECT_EQ(Card([](auto& options) {
              options.cards[0].properties.major = 12;
              options.driver_version = 13010;
            })(),
            absl::OkStatus());
}

}  // namespace
}  // namespace weft::testing
