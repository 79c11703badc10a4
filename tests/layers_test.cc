#include "tests/layers.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/file_system.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Planted violations: the checker itself.

TEST(CheckSource, AllowsWhatIsBelow) {
  EXPECT_THAT(CheckSource("graph/pass.cc",
                          "#include \"graph/pass.h\"\n#include <vector>\n"
                          "#include \"absl/status/status.h\"\n#include \"tensor/shape.h\"\n"),
              IsEmpty());
  EXPECT_THAT(CheckSource("tools/train.cc", "#include \"training/loop.h\"\n"), IsEmpty());
}

TEST(CheckSource, RefusesWhatIsAbove) {
  EXPECT_THAT(
      CheckSource("graph/pass.cc", "\n#include \"executor/program.h\"\n"),
      ElementsAre("graph/pass.cc:2: includes executor/program.h: graph/ may use only tensor, "
                  "platform, not executor/"));
  EXPECT_THAT(CheckSource("executor/x.h", "#include \"placement/cost.h\""),
              ElementsAre(HasSubstr("not placement/")));
  EXPECT_THAT(CheckSource("placement/x.h", "#include \"ops/kernel.h\""),
              ElementsAre(HasSubstr("not ops/")));
}

TEST(CheckSource, RefusesOddlySpacedIncludes) {
  EXPECT_THAT(CheckSource("tensor/x.cc", "  #  include   \"graph/graph.h\"  // why"),
              ElementsAre(HasSubstr("not graph/")));
}

TEST(CheckSource, LetsTestsUseMoreWhereTheTableSaysSo) {
  EXPECT_THAT(CheckSource("placement/x_test.cc", "#include \"ops/defs/rules/rules.h\""), IsEmpty());
  EXPECT_THAT(CheckSource("placement/x_test.cc", "#include \"executor/program.h\""),
              ElementsAre(HasSubstr("(its tests also ops)")));
}

TEST(CheckSource, KeepsLibrariesInsideTheirFences) {
  const auto check = [](const std::string& path, const std::string& header) {
    return CheckSource(path, "#include \"" + header + "\"").empty();
  };
  EXPECT_FALSE(check("distributed/worker.cc", "grpcpp/server.h"));
  EXPECT_FALSE(check("distributed/worker.cc", "distributed/grpc/worker.grpc.pb.h"));
  EXPECT_TRUE(check("distributed/grpc/server.cc", "grpcpp/server.h"));
  EXPECT_FALSE(check("ops/defs/conv/conv.cc", "oneapi/dnnl/dnnl.hpp"));
  EXPECT_TRUE(check("ops/kernels/cpu/conv/conv.cc", "oneapi/dnnl/dnnl.hpp"));
  EXPECT_FALSE(check("executor/x.cc", "cuda_runtime.h"));
  EXPECT_TRUE(check("tensor/cuda_device.cc", "cuda_runtime.h"));
  EXPECT_FALSE(check("training/x.cc", "onnx/onnx_pb.h"));
  EXPECT_TRUE(check("onnx_import/x.cc", "onnx/onnx_pb.h"));
  EXPECT_FALSE(check("placement/x.cc", "google/protobuf/message.h"));
}

TEST(CheckSource, KeepsPlatformOnAbseil) {
  EXPECT_THAT(CheckSource("platform/x.cc", "#include \"nlohmann/json.hpp\""),
              ElementsAre(HasSubstr("platform/ may use Abseil only, not nlohmann")));
  EXPECT_THAT(CheckSource("platform/checksum.cc", "#include <xxhash.h>"), IsEmpty());
}

TEST(CheckSource, KeepsTestCodeOutOfTheProduct) {
  EXPECT_THAT(CheckSource("graph/x.cc", "#include \"gtest/gtest.h\""),
              ElementsAre(HasSubstr("gtest is for tests only")));
  EXPECT_THAT(CheckSource("graph/x.cc", "#include \"platform/testing/fake_clock.h\""),
              ElementsAre(HasSubstr("only tests may use testing/")));
  EXPECT_THAT(CheckSource("graph/testing/x.cc", "#include \"platform/testing/fake_clock.h\""),
              IsEmpty());
}

TEST(CheckSource, WantsPathsFromTheRoot) {
  EXPECT_THAT(CheckSource("graph/x.cc", "#include \"graph.h\""),
              ElementsAre(HasSubstr("by its path from the repository root")));
}

TEST(CheckSource, WantsALayerForEveryFolder) {
  EXPECT_THAT(CheckSource("misc/x.cc", ""), ElementsAre(HasSubstr("misc/ has no layer")));
}

TEST(CheckBuildFile, RefusesDependenciesOnWhatIsAbove) {
  EXPECT_THAT(CheckBuildFile("graph/BUILD.bazel",
                             "cc_library(\n    name = \"pass\",\n    deps = [\n"
                             "        \"//executor:program\",\n        \"//tensor\",\n    ],\n)\n"),
              ElementsAre(AllOf(HasSubstr("graph/BUILD.bazel:4: depends on //executor:program"),
                                HasSubstr("not executor/"))));
}

TEST(CheckBuildFile, TellsTestsFromTheProduct) {
  const std::string deps = "    name = \"x\",\n    deps = [\"//ops/defs\"],\n)\n";
  EXPECT_THAT(CheckBuildFile("placement/BUILD.bazel", "cc_test(\n" + deps), IsEmpty());
  EXPECT_THAT(CheckBuildFile("placement/BUILD.bazel", "cc_library(\n" + deps),
              ElementsAre(HasSubstr("not ops/")));
  EXPECT_THAT(CheckBuildFile("placement/BUILD.bazel", "cc_library(\n    testonly = True,\n" + deps),
              IsEmpty());
}

TEST(CheckBuildFile, KeepsLibrariesInsideTheirFences) {
  const auto check = [](const std::string& path, const std::string& library) {
    return CheckBuildFile(path, "cc_library(\n    deps = [\"//third_party:" + library + "\"],\n)\n")
        .empty();
  };
  EXPECT_FALSE(check("distributed/BUILD.bazel", "onednn"));
  EXPECT_TRUE(check("ops/kernels/cpu/BUILD.bazel", "onednn"));
  EXPECT_FALSE(check("executor/BUILD.bazel", "grpc"));
  EXPECT_TRUE(check("distributed/grpc/BUILD.bazel", "grpc"));
  EXPECT_TRUE(check("tensor/BUILD.bazel", "cuda"));
}

TEST(CheckBuildFile, WantsFoldersVisibleToTheirUsersOnly) {
  const std::string text = "package(default_visibility = [\"//visibility:public\"])\n";
  EXPECT_THAT(CheckBuildFile("graph/passes/BUILD.bazel", text),
              ElementsAre(HasSubstr("graph/passes/BUILD.bazel:1: is visible to all: say "
                                    "\"//:graph_users\"")));
  EXPECT_THAT(CheckBuildFile("platform/BUILD.bazel", text), IsEmpty());
  EXPECT_THAT(
      CheckBuildFile("graph/BUILD.bazel", "package(default_visibility = [\"//:graph_users\"])\n"),
      IsEmpty());
}

TEST(FindRings, SaysWhoIncludesWhom) {
  const std::map<std::string, std::string> sources = {
      {"graph/a.h", ""},
      {"graph/a.cc", "#include \"graph/a.h\"\n#include \"graph/b.h\"\n"},
      {"graph/b.h", "#include \"graph/c.h\"\n"},
      {"graph/c.h", ""},
      {"graph/c.cc", "#include \"graph/a.h\"\n"},
      {"graph/d.h", "#include \"graph/a.h\"\n"}};
  EXPECT_THAT(FindRings(sources), ElementsAre("graph/a -> graph/b -> graph/c -> graph/a"));
}

TEST(FindRings, AHeaderAndItsSourceAreOne) {
  EXPECT_THAT(FindRings({{"graph/a.h", ""}, {"graph/a.cc", "#include \"graph/a.h\"\n"}}),
              ElementsAre());
}

TEST(CountSubjects, CountsHeaderAndSourceOnceAndNoTests) {
  const std::map<std::string, int> counts =
      CountSubjects({"graph/a.h", "graph/a.cc", "graph/a_test.cc", "graph/b.cc",
                     "graph/passes/c.cc", "README.md"});
  EXPECT_EQ(counts.at("graph"), 2);
  EXPECT_EQ(counts.at("graph/passes"), 1);
}

TEST(CheckSource, KeepsTheOrderOfRooms) {
  const std::string include = "#include \"placement/search/plan_search.h\"\n";
  EXPECT_THAT(CheckSource("placement/sharding/x.cc", include),
              ElementsAre("placement/sharding/x.cc:1: includes placement/search/plan_search.h: "
                          "placement/sharding/ may use placement/conversions/, "
                          "placement/graph_views/, placement/files/, placement/cost/, not "
                          "placement/search/ (tests/layers.cc lists rooms from the bottom up)"));
  EXPECT_THAT(CheckSource("placement/sharding/x_test.cc", include), ElementsAre());
  EXPECT_THAT(CheckSource("ops/defs/conv/x.cc", "#include \"ops/defs/movement/y.h\"\n"),
              ElementsAre());
}

// The tree itself. The test's own files lead to it: they are links into the repository.
class Tree : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::canonical("WORKSPACE").parent_path();
    ASSERT_TRUE(std::filesystem::exists(root_ / ".bazelrc")) << root_;
  }

  // Paths, relative to the root, of files in the folders of ours.
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& top : std::filesystem::directory_iterator(root_)) {
      const std::string name = top.path().filename().string();
      if (!top.is_directory() || top.is_symlink() || name[0] == '.') continue;
      if (name == "build" || name == "runs" || name == "docs") continue;
      for (const auto& entry : std::filesystem::recursive_directory_iterator(top.path())) {
        if (entry.is_regular_file())
          files.push_back(entry.path().lexically_relative(root_).string());
      }
    }
    return files;
  }

  std::string Read(const std::string& path) const {
    absl::StatusOr<std::string> text = RealFileSystem().ReadFile((root_ / path).string());
    EXPECT_TRUE(text.ok()) << text.status();
    return text.value_or("");
  }

  std::filesystem::path root_;
};

bool IsSource(const std::string& path) {
  for (const char* ending : {".cc", ".h", ".cu", ".cuh"}) {
    if (std::filesystem::path(path).extension() == ending) return true;
  }
  return false;
}

TEST_F(Tree, IncludesFollowTheLayers) {
  int seen = 0;
  for (const std::string& path : Files()) {
    if (!IsSource(path)) continue;
    ++seen;
    for (const std::string& violation : CheckSource(path, Read(path))) ADD_FAILURE() << violation;
  }
  EXPECT_GT(seen, 20);
}

TEST_F(Tree, NoFilesIncludeEachOtherInARing) {
  std::map<std::string, std::string> sources;
  for (const std::string& path : Files()) {
    if (IsSource(path)) sources[path] = Read(path);
  }
  EXPECT_THAT(FindRings(sources), ElementsAre());
}

TEST_F(Tree, NoRoomIsCrowded) {
  for (const auto& [folder, subjects] : CountSubjects(Files())) {
    EXPECT_LE(subjects, 25) << folder << "/: make rooms inside it";
  }
}

TEST_F(Tree, DependenciesFollowTheLayers) {
  int seen = 0;
  for (const std::string& path : Files()) {
    if (std::filesystem::path(path).filename() != "BUILD.bazel") continue;
    ++seen;
    for (const std::string& violation : CheckBuildFile(path, Read(path))) {
      ADD_FAILURE() << violation;
    }
  }
  EXPECT_GT(seen, 3);
}

}  // namespace
}  // namespace weft::testing
