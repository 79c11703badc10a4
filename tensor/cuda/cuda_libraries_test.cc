#include "tensor/cuda/cuda_libraries.h"

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/testing/fake_library_opener.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Version functions as the libraries have them.
template <size_t kNumber>
size_t Returns() {
  return kNumber;
}
template <int kNumber>
int Nccl(int* number) {
  *number = kNumber;
  return 0;
}
int BrokenNccl(int*) { return 3; }
int Nvrtc130(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return 0;
}
int Twice(int number) { return 2 * number; }

template <typename Function>
void* Address(Function* function) {
  return reinterpret_cast<void*>(function);
}

std::string MessageOf(CudaLibraryKind kind, LibraryOpener& opener) {
  const auto library = CudaLibrary::Open(kind, opener);
  EXPECT_EQ(library.status().code(), absl::StatusCode::kFailedPrecondition) << library.status();
  return std::string(library.status().message());
}

TEST(CudaLibraries, EachIsOpenedAndSaysItsVersion) {
  FakeLibraryOpener opener;
  opener.Add("libcublasLt.so.13", {{"cublasLtGetVersion", Address(&Returns<130103>)}},
             "/opt/lib/libcublasLt.so.13.1.3");
  opener.Add("libcudnn.so.9", {{"cudnnGetVersion", Address(&Returns<91300>)}});
  opener.Add("libnccl.so.2", {{"ncclGetVersion", Address(&Nccl<22707>)}});
  opener.Add("libnvrtc.so.13", {{"nvrtcVersion", Address(&Nvrtc130)}});
  std::map<std::string, std::string> versions;
  for (const CudaLibraryKind kind : kCudaLibraries) {
    const auto library = CudaLibrary::Open(kind, opener);
    ASSERT_TRUE(library.ok()) << library.status();
    versions[std::string(CudaLibraryName(kind))] = (*library)->version();
  }
  EXPECT_EQ(
      versions,
      (std::map<std::string, std::string>{
          {"cuBLASLt", "13.1.3"}, {"cuDNN", "9.13.0"}, {"NCCL", "2.27.7"}, {"NVRTC", "13.0.0"}}));
  EXPECT_EQ(CudaLibrary::Open(CudaLibraryKind::kCublasLt, opener).value()->path(),
            "/opt/lib/libcublasLt.so.13.1.3");
}

TEST(CudaLibraries, FoldersAreSearchedInTheOrderThatIsPromised) {
  FakeLibraryOpener opener;
  opener.SetEnvironment("WEFT_CUDA_LIBRARIES", "/mine:/yours");
  opener.SetEnvironment("CUDA_HOME", "/opt/cuda");
  (void)CudaLibrary::Open(CudaLibraryKind::kCublasLt, opener);
  EXPECT_THAT(
      opener.tried(),
      ElementsAre("/mine/libcublasLt.so.13", "/mine/libcublasLt.so.12", "/yours/libcublasLt.so.13",
                  "/yours/libcublasLt.so.12", "libcublasLt.so.13", "libcublasLt.so.12",
                  "/usr/local/cuda/lib64/libcublasLt.so.13",
                  "/usr/local/cuda/lib64/libcublasLt.so.12", "/opt/cuda/lib64/libcublasLt.so.13",
                  "/opt/cuda/lib64/libcublasLt.so.12"));
}

TEST(CudaLibraries, AMissingOneIsNamedWithNamesAndFolders) {
  FakeLibraryOpener opener;
  opener.SetEnvironment("LD_LIBRARY_PATH", "/a:/b");
  EXPECT_THAT(MessageOf(CudaLibraryKind::kCudnn, opener),
              AllOf(HasSubstr("cuDNN cannot be opened"), HasSubstr("libcudnn.so.9"),
                    HasSubstr("LD_LIBRARY_PATH is '/a:/b'"), HasSubstr("/usr/local/cuda/lib64"),
                    HasSubstr("install cuDNN 9"), HasSubstr("WEFT_CUDA_LIBRARIES")));
}

TEST(CudaLibraries, AFileThatDoesNotOpenIsNotCalledMissing) {
  FakeLibraryOpener opener;
  opener.AddBroken("/usr/local/cuda/lib64/libnccl.so.2");
  EXPECT_THAT(MessageOf(CudaLibraryKind::kNccl, opener), HasSubstr("invalid ELF header"));
}

TEST(CudaLibraries, VersionsThatDoNotFitAreRefusedWithWhatWould) {
  FakeLibraryOpener old;
  old.Add("libnccl.so.2", {{"ncclGetVersion", Address(&Nccl<21703>)}}, "/lib/libnccl.so.2");
  EXPECT_THAT(MessageOf(CudaLibraryKind::kNccl, old),
              AllOf(HasSubstr("NCCL 2.17.3 (/lib/libnccl.so.2) is too old"),
                    HasSubstr("expected 2.18.0 or later, before 3.0.0")));
  FakeLibraryOpener later;
  later.Add("libnccl.so.2", {{"ncclGetVersion", Address(&Nccl<30000>)}});
  EXPECT_THAT(MessageOf(CudaLibraryKind::kNccl, later),
              HasSubstr("3.0.0 (libnccl.so.2) is too new"));
}

TEST(CudaLibraries, AMissingFunctionIsNamedWithTheLibrary) {
  FakeLibraryOpener opener;
  opener.Add("libcublasLt.so.13",
             {{"cublasLtGetVersion", Address(&Returns<130000>)}, {"twice", Address(&Twice)}});
  const auto library = CudaLibrary::Open(CudaLibraryKind::kCublasLt, opener).value();
  decltype(&Twice) twice = nullptr;
  ASSERT_TRUE(library->Bind("twice", &twice).ok());
  EXPECT_EQ(twice(21), 42);
  const absl::Status missing = library->Bind("thrice", &twice);
  EXPECT_EQ(missing.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(missing.message()),
              HasSubstr("cuBLASLt 13.0.0 (libcublasLt.so.13) has no function thrice"));
}

TEST(CudaLibraries, WithoutItsVersionFunctionItIsAnotherLibrary) {
  FakeLibraryOpener opener;
  opener.Add("libnvrtc.so.13", {});
  EXPECT_THAT(MessageOf(CudaLibraryKind::kNvrtc, opener),
              HasSubstr("has no function nvrtcVersion"));
}

TEST(CudaLibraries, AFailureOfItsOwnIsSaidWithItsNumber) {
  FakeLibraryOpener opener;
  opener.Add("libnccl.so.2", {{"ncclGetVersion", Address(&BrokenNccl)}});
  const auto library = CudaLibrary::Open(CudaLibraryKind::kNccl, opener);
  EXPECT_EQ(library.status().code(), absl::StatusCode::kInternal);
  opener.Add("libnccl.so.2", {{"ncclGetVersion", Address(&Nccl<22707>)}});
  const auto good = CudaLibrary::Open(CudaLibraryKind::kNccl, opener).value();
  EXPECT_THAT(
      std::string(good->Refused("ncclCommInitRank", 2, "system error").message()),
      HasSubstr("NCCL 2.27.7 (libnccl.so.2) refuses ncclCommInitRank with 2, system error"));
}

}  // namespace
}  // namespace weft::testing
