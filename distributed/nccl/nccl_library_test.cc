#include "distributed/nccl/nccl_library.h"

#include <climits>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/testing/fake_library_opener.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::weft::testing::FakeLibraryOpener;

constexpr char kNcclFile[] = "libnccl.so.2";

// What the functions below were called with.
struct SeenCall {
  std::string id;
  int ranks = 0;
  int rank = 0;
  size_t configuration_bytes = 0;
  unsigned int magic = 0;
  int blocking = -1;
  int max_ctas = 0;
  int later = 0;  // where NCCL 2.25 has an attribute more
  size_t count = 0;
  int type = -1;
  int operation = -1;
  int root = -1;
  void* stream = nullptr;
};
SeenCall seen;
int reported_version = 22809;

int GetVersion(int* version) {
  *version = reported_version;
  return 0;
}
int InitRank(void** communicator, int ranks, NcclUniqueId id, int rank, void* configuration) {
  seen.id = std::string(id.bytes.data());
  seen.ranks = ranks;
  seen.rank = rank;
  // As in nccl.h: size, magic, version, blocking, cgaClusterSize, minCTAs, maxCTAs.
  const char* const bytes = static_cast<const char*>(configuration);
  std::memcpy(&seen.configuration_bytes, bytes, sizeof(size_t));
  std::memcpy(&seen.magic, bytes + 8, sizeof(int));
  std::memcpy(&seen.blocking, bytes + 16, sizeof(int));
  std::memcpy(&seen.max_ctas, bytes + 28, sizeof(int));
  std::memcpy(&seen.later, bytes + 44, sizeof(int));
  *communicator = &seen;
  return 7;
}
int AllReduce(const void*, void*, size_t count, int type, int operation, void*, void* stream) {
  seen.count = count;
  seen.type = type;
  seen.operation = operation;
  seen.stream = stream;
  return 0;
}
int Reduce(const void*, void*, size_t count, int type, int operation, int root, void*, void*) {
  seen.count = count;
  seen.type = type;
  seen.operation = operation;
  seen.root = root;
  return 5;
}
int Any() { return 0; }
const char* Text(int code) { return code == 5 ? "invalid usage" : "other"; }

class NcclLibraryTest : public ::testing::Test {
 protected:
  NcclLibraryTest() {
    reported_version = 22809;
    seen = SeenCall();
    for (const char* const name :
         {"ncclGetUniqueId", "ncclCommGetAsyncError", "ncclCommFinalize", "ncclCommDestroy",
          "ncclCommAbort", "ncclAllGather", "ncclReduceScatter", "ncclBroadcast", "ncclSend",
          "ncclRecv", "ncclGroupStart", "ncclGroupEnd", "ncclGetLastError"}) {
      functions_[name] = reinterpret_cast<void*>(&Any);
    }
    functions_["ncclGetVersion"] = reinterpret_cast<void*>(&GetVersion);
    functions_["ncclCommInitRankConfig"] = reinterpret_cast<void*>(&InitRank);
    functions_["ncclAllReduce"] = reinterpret_cast<void*>(&AllReduce);
    functions_["ncclReduce"] = reinterpret_cast<void*>(&Reduce);
    functions_["ncclGetErrorString"] = reinterpret_cast<void*>(&Text);
  }
  absl::StatusOr<std::unique_ptr<Nccl>> Open() {
    opener_.Add(kNcclFile, functions_, "/opt/libnccl.so.2");
    auto library = CudaLibrary::Open(CudaLibraryKind::kNccl, opener_);
    if (!library.ok()) return library.status();
    library_ = *std::move(library);
    return BindNccl(*library_);
  }

  std::map<std::string, void*> functions_;
  FakeLibraryOpener opener_;
  std::unique_ptr<CudaLibrary> library_;
};

TEST_F(NcclLibraryTest, AMissingLibraryIsNamed) {
  const auto library = CudaLibrary::Open(CudaLibraryKind::kNccl, opener_);
  EXPECT_EQ(library.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(library.status().message()),
              AllOf(HasSubstr("NCCL cannot be opened"), HasSubstr(kNcclFile)));
}

TEST_F(NcclLibraryTest, AnOldLibraryIsRefused) {
  reported_version = 21705;
  const auto nccl = Open();
  EXPECT_EQ(nccl.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(nccl.status().message()),
              AllOf(HasSubstr("2.17.5"), HasSubstr("too old"), HasSubstr("2.18.0")));
}

TEST_F(NcclLibraryTest, EachFunctionThatIsMissingIsNamed) {
  const std::map<std::string, void*> all = functions_;
  ASSERT_EQ(all.size(), 18U);
  for (const auto& [name, address] : all) {
    if (name == "ncclGetVersion") continue;  // opening the library wants it
    functions_ = all;
    functions_.erase(name);
    const auto nccl = Open();
    EXPECT_EQ(nccl.status().code(), absl::StatusCode::kFailedPrecondition) << name;
    EXPECT_THAT(std::string(nccl.status().message()), HasSubstr("has no function " + name));
  }
}

TEST_F(NcclLibraryTest, CommunicatorsDoNotBlock) {
  const auto nccl = Open();
  ASSERT_TRUE(nccl.ok()) << nccl.status();
  EXPECT_EQ((*nccl)->version(), 22809);
  NcclUniqueId id = {};
  std::memcpy(id.bytes.data(), "the id", 6);
  NcclCommunicator communicator = nullptr;
  EXPECT_EQ((*nccl)->InitRank(id, 4, 2, 0, &communicator), NcclCode::kInProgress);
  EXPECT_EQ(communicator, &seen);
  EXPECT_EQ(seen.id, "the id");
  EXPECT_EQ(seen.ranks, 4);
  EXPECT_EQ(seen.rank, 2);
  EXPECT_EQ(seen.configuration_bytes, 48U);  // of NCCL 2.18
  EXPECT_EQ(seen.magic, 0xcafebeefU);
  EXPECT_EQ(seen.blocking, 0);
  EXPECT_EQ(seen.max_ctas, INT_MIN);  // NCCL's choice
  EXPECT_EQ(seen.later, INT_MIN);
  EXPECT_EQ((*nccl)->InitRank(id, 2, 0, 8, &communicator), NcclCode::kInProgress);
  EXPECT_EQ(seen.max_ctas, 8);
}

TEST_F(NcclLibraryTest, SumsHaveTheNumbersOfTheHeader) {
  const auto nccl = Open();
  ASSERT_TRUE(nccl.ok()) << nccl.status();
  int stream = 0;
  EXPECT_EQ((*nccl)->AllReduce(nullptr, nullptr, 12, NcclType::kBfloat16, &seen, &stream),
            NcclCode::kSuccess);
  EXPECT_EQ(seen.count, 12U);
  EXPECT_EQ(seen.type, 9);       // ncclBfloat16
  EXPECT_EQ(seen.operation, 0);  // ncclSum
  EXPECT_EQ(seen.stream, &stream);
  EXPECT_EQ((*nccl)->Reduce(nullptr, nullptr, 5, NcclType::kFloat32, 3, &seen, &stream),
            NcclCode::kInvalidUsage);
  EXPECT_EQ(seen.type, 7);  // ncclFloat32
  EXPECT_EQ(seen.root, 3);
  EXPECT_EQ((*nccl)->ErrorText(NcclCode::kInvalidUsage), "invalid usage");
}

TEST(NcclVersionTest, IsWrittenAsNvidiaDoes) { EXPECT_EQ(NcclVersionText(22809), "2.28.9"); }

// Where the real one is installed, it has all functions; no GPU is needed for that.
TEST(SystemNcclTest, HasAllFunctions) {
  const auto library = FindCudaLibrary(CudaLibraryKind::kNccl);
  if (!library.ok()) GTEST_SKIP() << library.status();
  const auto nccl = SystemNccl();
  ASSERT_TRUE(nccl.ok()) << nccl.status();
  EXPECT_EQ(NcclVersionText((*nccl)->version()), (*library)->version());
}

}  // namespace
}  // namespace weft
