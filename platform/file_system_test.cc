#include "platform/file_system.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/testing/fake_file_system.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Text(const MappedFile& file) {
  return std::string(reinterpret_cast<const char*>(file.data()), file.size());
}

// What holds for the real file system and for the fake one.
class EveryFileSystem : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/weft-file-system-XXXXXX";
    if (std::string_view(GetParam()) == "Real") {
      ASSERT_NE(mkdtemp(pattern), nullptr);
      real_folder_ = pattern;
      folder_ = pattern;
    } else {
      files_ = &fake_;
      folder_ = "/folder";
      ASSERT_TRUE(fake_.CreateDirectories(folder_).ok());
    }
  }
  void TearDown() override {
    if (!real_folder_.empty()) std::filesystem::remove_all(real_folder_);
  }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  FileSystem& files() { return *files_; }

  testing::FakeFileSystem fake_;
  FileSystem* files_ = &RealFileSystem();
  std::string folder_;
  std::string real_folder_;
};

INSTANTIATE_TEST_SUITE_P(All, EveryFileSystem, ::testing::Values("Real", "Fake"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(EveryFileSystem, ReadsWhatWasWritten) {
  const std::string bytes("zero \0 inside", 13);
  ASSERT_TRUE(files().WriteFileAtomically(Path("file"), bytes).ok());
  EXPECT_EQ(*files().ReadFile(Path("file")), bytes);
}

TEST_P(EveryFileSystem, WriteReplacesTheWholeFile) {
  ASSERT_TRUE(files().WriteFileAtomically(Path("file"), "a longer first text").ok());
  ASSERT_TRUE(files().WriteFileAtomically(Path("file"), "short").ok());
  EXPECT_EQ(*files().ReadFile(Path("file")), "short");
  EXPECT_THAT(*files().ListDirectory(folder_), ElementsAre("file"));
}

TEST_P(EveryFileSystem, MapsBytesOnAPageBoundary) {
  ASSERT_TRUE(files().WriteFileAtomically(Path("file"), "weights").ok());
  const auto mapped = files().MapFile(Path("file"));
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_EQ(Text(**mapped), "weights");
  EXPECT_EQ(reinterpret_cast<uintptr_t>((*mapped)->data()) % 4096, 0u);
}

TEST_P(EveryFileSystem, MappingSurvivesReplacementAndRemoval) {
  ASSERT_TRUE(files().WriteFileAtomically(Path("file"), "old").ok());
  const auto mapped = files().MapFile(Path("file"));
  ASSERT_TRUE(mapped.ok());
  ASSERT_TRUE(files().WriteFileAtomically(Path("file"), "new").ok());
  ASSERT_TRUE(files().RemoveFile(Path("file")).ok());
  EXPECT_EQ(Text(**mapped), "old");
}

TEST_P(EveryFileSystem, MapsAnEmptyFile) {
  ASSERT_TRUE(files().WriteFileAtomically(Path("file"), "").ok());
  const auto mapped = files().MapFile(Path("file"));
  ASSERT_TRUE(mapped.ok());
  EXPECT_EQ((*mapped)->size(), 0u);
}

TEST_P(EveryFileSystem, MissingFileIsNamedWithAdvice) {
  for (const absl::Status& status : {files().ReadFile(Path("no such file")).status(),
                                     files().MapFile(Path("no such file")).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(status.message(), "cannot open \"" + Path("no such file") +
                                    "\": No such file or directory; check the path, and that its "
                                    "folder exists");
  }
}

TEST_P(EveryFileSystem, FolderIsNotAFile) {
  EXPECT_EQ(files().ReadFile(folder_).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(files().WriteFileAtomically(folder_, "x").code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(EveryFileSystem, WriteIntoAMissingFolderNamesTheFile) {
  const absl::Status status = files().WriteFileAtomically(Path("missing/file"), "x");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(Path("missing/file")));
}

TEST_P(EveryFileSystem, AppendAddsAtTheEnd) {
  ASSERT_TRUE(files().WriteFileAtomically(Path("log"), "one\n").ok());
  auto log = files().OpenAppend(Path("log"));
  ASSERT_TRUE(log.ok()) << log.status();
  ASSERT_TRUE((*log)->Append("two\n").ok());
  ASSERT_TRUE((*log)->Flush().ok());
  EXPECT_EQ(*files().ReadFile(Path("log")), "one\ntwo\n");
  ASSERT_TRUE((*log)->Append("three\n").ok());
  ASSERT_TRUE((*log)->Close().ok());
  EXPECT_EQ(*files().ReadFile(Path("log")), "one\ntwo\nthree\n");
}

TEST_P(EveryFileSystem, OpenEmptyDropsWhatWasThere) {
  ASSERT_TRUE(files().WriteFileAtomically(Path("log"), "old\n").ok());
  auto log = files().OpenEmpty(Path("log"));
  ASSERT_TRUE(log.ok()) << log.status();
  ASSERT_TRUE((*log)->Append("new\n").ok());
  ASSERT_TRUE((*log)->Close().ok());
  EXPECT_EQ(*files().ReadFile(Path("log")), "new\n");
}

TEST_P(EveryFileSystem, DestructorOfAWritableFileKeepsWhatWasAppended) {
  {
    auto log = files().OpenAppend(Path("log"));
    ASSERT_TRUE(log.ok());
    ASSERT_TRUE((*log)->Append("kept").ok());
  }
  EXPECT_EQ(*files().ReadFile(Path("log")), "kept");
}

TEST_P(EveryFileSystem, CreatesFoldersAboveAndListsThem) {
  ASSERT_TRUE(files().CreateDirectories(Path("b/c")).ok());
  ASSERT_TRUE(files().CreateDirectories(Path("b/c")).ok());
  ASSERT_TRUE(files().WriteFileAtomically(Path("b/a"), "x").ok());
  EXPECT_THAT(*files().ListDirectory(Path("b")), ElementsAre("a", "c"));
  EXPECT_TRUE(files().Exists(Path("b/c")));
  EXPECT_FALSE(files().Exists(Path("b/d")));
}

TEST_P(EveryFileSystem, AReplacementIsSeenWhenItIsClosed) {
  ASSERT_TRUE(files().WriteFileAtomically(Path("file"), "old").ok());
  const std::string large(200'000, 'x');
  {
    const auto file = files().OpenReplacement(Path("file"));
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->Append("new ").ok());
    ASSERT_TRUE((*file)->Append(large).ok());
    ASSERT_TRUE((*file)->Append(" end").ok());
    EXPECT_EQ(*files().ReadFile(Path("file")), "old");
    ASSERT_TRUE((*file)->Close().ok());
  }
  EXPECT_EQ(*files().ReadFile(Path("file")), absl::StrCat("new ", large, " end"));
}

TEST_P(EveryFileSystem, ZerosAreAddedBetweenWhatIsAppended) {
  const auto file = files().OpenReplacement(Path("holes"));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Append("begin").ok());
  ASSERT_TRUE((*file)->AppendZeros(100'003).ok());
  ASSERT_TRUE((*file)->AppendZeros(0).ok());
  ASSERT_TRUE((*file)->Append("end").ok());
  ASSERT_TRUE((*file)->AppendZeros(1).ok());
  ASSERT_TRUE((*file)->Close().ok());
  EXPECT_EQ(*files().ReadFile(Path("holes")),
            absl::StrCat("begin", std::string(100'003, '\0'), "end", std::string(1, '\0')));
  EXPECT_EQ((*file)->AppendZeros(1).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_P(EveryFileSystem, AReplacementThatIsNotClosedLeavesNothingBehind) {
  ASSERT_TRUE(files().CreateDirectories(Path("folder")).ok());
  ASSERT_TRUE(files().WriteFileAtomically(Path("folder/file"), "old").ok());
  {
    const auto file = files().OpenReplacement(Path("folder/file"));
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->Append(std::string(200'000, 'x')).ok());
  }
  EXPECT_EQ(*files().ReadFile(Path("folder/file")), "old");
  EXPECT_EQ(*files().ListDirectory(Path("folder")), std::vector<std::string>{"file"});
}

// The fake ones took it: what a caller appended too late was lost, and no test could tell.
TEST_P(EveryFileSystem, AClosedFileTakesNothingMore) {
  const auto append = files().OpenAppend(Path("append"));
  const auto empty = files().OpenEmpty(Path("empty"));
  const auto replacement = files().OpenReplacement(Path("replacement"));
  const auto expect_closed = [](const absl::Status& status, const std::string& path) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << path;
    EXPECT_EQ(status.message(), "\"" + path + "\" is closed; open it again to write");
  };
  for (const auto& [file, path] :
       {std::pair(&append, Path("append")), std::pair(&empty, Path("empty")),
        std::pair(&replacement, Path("replacement"))}) {
    ASSERT_TRUE(file->ok()) << file->status();
    ASSERT_TRUE((**file)->Append("in time").ok());
    ASSERT_TRUE((**file)->Close().ok());
    expect_closed((**file)->Append("late"), path);
    expect_closed((**file)->Flush(), path);
    expect_closed((**file)->Close(), path);
    EXPECT_EQ(*files().ReadFile(path), "in time");
  }
}

TEST_P(EveryFileSystem, FolderCannotReplaceAFile) {
  ASSERT_TRUE(files().WriteFileAtomically(Path("a"), "x").ok());
  EXPECT_FALSE(files().CreateDirectories(Path("a/b")).ok());
}

TEST_P(EveryFileSystem, RemoveOfAMissingFileIsAnError) {
  EXPECT_EQ(files().RemoveFile(Path("x")).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(files().ListDirectory(Path("x")).status().code(), absl::StatusCode::kNotFound);
}

TEST_P(EveryFileSystem, MapsBeneathAFolder) {
  ASSERT_TRUE(files().CreateDirectories(Path("model/data")).ok());
  ASSERT_TRUE(files().WriteFileAtomically(Path("model/data/w.bin"), "weights").ok());
  const auto mapped = files().MapFileBeneath(Path("model"), "data/w.bin");
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_EQ(Text(**mapped), "weights");
  EXPECT_EQ(files().MapFileBeneath(Path("model"), "none").status().code(),
            absl::StatusCode::kNotFound);
}

TEST_P(EveryFileSystem, MapBeneathRefusesToLeaveTheFolder) {
  ASSERT_TRUE(files().CreateDirectories(Path("model")).ok());
  ASSERT_TRUE(files().WriteFileAtomically(Path("secret"), "x").ok());
  for (const std::string& escape : {std::string("../secret"), Path("secret"), std::string("..")}) {
    const absl::Status status = files().MapFileBeneath(Path("model"), escape).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << escape;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("\"" + escape + "\""), HasSubstr("\"" + Path("model") + "\"")));
  }
}

class RealFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/weft-file-system-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  FileSystem& files_ = RealFileSystem();
  std::string folder_;
};

TEST_F(RealFiles, MapBeneathRefusesSymbolicLinksAndWhatIsNoFile) {
  ASSERT_TRUE(files_.WriteFileAtomically(Path("inside"), "x").ok());
  std::filesystem::create_symlink(Path("inside"), Path("link"));
  std::filesystem::create_directory_symlink(folder_, Path("loop"));
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  for (const char* name : {"link", "loop/inside", "pipe", "."}) {
    EXPECT_EQ(files_.MapFileBeneath(folder_, name).status().code(),
              absl::StatusCode::kInvalidArgument)
        << name;
  }
}

TEST_F(RealFiles, RefusesDevicesAndPipesAtOnce) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  for (const std::string& path : {std::string("/dev/zero"), Path("pipe")}) {
    const absl::Status status = files_.ReadFile(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("give the path of a regular file"));
  }
  EXPECT_EQ(files_.WriteFileAtomically("/dev/null", "x").code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST_F(RealFiles, ReadsFilesWhoseSizeIsNotKnown) {
  const absl::StatusOr<std::string> status = files_.ReadFile("/proc/self/status");
  ASSERT_TRUE(status.ok());
  EXPECT_THAT(*status, HasSubstr("VmSize"));
}

TEST_F(RealFiles, RefusesToReadAHugeFile) {
  ASSERT_TRUE(files_.WriteFileAtomically(Path("huge"), "").ok());
  ASSERT_EQ(truncate(Path("huge").c_str(), FileSystem::kMaximumReadBytes + 1), 0);
  EXPECT_EQ(files_.ReadFile(Path("huge")).status().code(), absl::StatusCode::kResourceExhausted);
}

// A file of the size is read, one of a byte more is not: 4 GiB of holes would fill the memory.
TEST_F(RealFiles, ReadsUpToABound) {
  ASSERT_TRUE(files_.WriteFileAtomically(Path("five"), "12345").ok());
  EXPECT_EQ(*files_.ReadFileUpTo(Path("five"), 5), "12345");
  const absl::Status longer = files_.ReadFileUpTo(Path("five"), 4).status();
  EXPECT_EQ(longer.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(longer.message()),
              HasSubstr("five\" holds 5 bytes, more than the 4 that are read of such a file"));
  ASSERT_EQ(truncate(Path("five").c_str(), int64_t{4} << 30), 0);
  EXPECT_EQ(files_.ReadFileUpTo(Path("five"), 1 << 20).status().code(),
            absl::StatusCode::kResourceExhausted);
}

// The system says that it has no bytes.
TEST_F(RealFiles, TheBoundHoldsForAFileOfUnknownSize) {
  const absl::StatusOr<std::string> whole = files_.ReadFileUpTo("/proc/self/status", 1 << 20);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_THAT(*whole, HasSubstr("VmSize"));
  EXPECT_EQ(files_.ReadFileUpTo("/proc/self/status", 10).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(RealFiles, RefusesPathsWithAZeroByteOrNothing) {
  const std::string hidden("/etc/passwd\0.bin", 16);
  EXPECT_THAT(std::string(files_.ReadFile(hidden).status().message()), HasSubstr("zero byte"));
  EXPECT_EQ(files_.MapFileBeneath("/etc", std::string("passwd\0x", 8)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(files_.ReadFile("").status().message()), HasSubstr("is empty"));
}

TEST_F(RealFiles, EscapesControlCharactersOfAPath) {
  EXPECT_THAT(std::string(files_.ReadFile("/no\n\x1b[31m").status().message()),
              HasSubstr("\"/no\\n\\033[31m\""));
}

TEST_F(RealFiles, FailedWriteKeepsTheOldFileAndLeavesNothingBehind) {
  ASSERT_TRUE(files_.WriteFileAtomically(Path("model"), "old").ok());
  struct rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit limit = {.rlim_cur = 1000, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const absl::Status status = files_.WriteFileAtomically(Path("model"), std::string(5000, 'x'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);

  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot write \"" + Path("model") + "\""));
  EXPECT_EQ(*files_.ReadFile(Path("model")), "old");
  EXPECT_THAT(*files_.ListDirectory(folder_), ElementsAre("model"));
}

TEST_F(RealFiles, FullDiskIsReportedByAppend) {
  auto full = files_.OpenAppend("/dev/full");
  ASSERT_TRUE(full.ok()) << full.status();
  ASSERT_TRUE((*full)->Append("line\n").ok());
  const absl::Status status = (*full)->Flush();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("No space left on device"), HasSubstr("free space on that disk")));
}

TEST_F(RealFiles, WriteKeepsTheModeAndFollowsTheLink) {
  ASSERT_TRUE(files_.WriteFileAtomically(Path("file"), "old").ok());
  ASSERT_EQ(chmod(Path("file").c_str(), 0640), 0);
  std::filesystem::create_symlink(Path("file"), Path("link"));
  ASSERT_TRUE(files_.WriteFileAtomically(Path("link"), "new").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(Path("link")));
  EXPECT_EQ(*files_.ReadFile(Path("file")), "new");
  struct stat status = {};
  ASSERT_EQ(stat(Path("file").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0640u);
}

TEST(FakeFiles, EachStepOfAWriteCanFailAndKeepsTheOldFile) {
  using Operation = testing::FakeFileSystem::Operation;
  testing::FakeFileSystem files;
  ASSERT_TRUE(files.WriteFileAtomically("/file", "old").ok());
  for (const Operation operation :
       {Operation::kOpen, Operation::kWrite, Operation::kSync, Operation::kRename}) {
    files.InjectError(operation, EIO);
    EXPECT_EQ(files.WriteFileAtomically("/file", "new").code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(*files.ReadFile("/file"), "old");
  }
  EXPECT_TRUE(files.WriteFileAtomically("/file", "new").ok());
}

TEST(FakeFiles, ReadsUpToABound) {
  testing::FakeFileSystem files;
  ASSERT_TRUE(files.WriteFileAtomically("/five", "12345").ok());
  EXPECT_EQ(*files.ReadFileUpTo("/five", 5), "12345");
  EXPECT_EQ(files.ReadFileUpTo("/five", 4).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(FakeFiles, InjectedErrorWaitsForItsTurn) {
  testing::FakeFileSystem files;
  files.InjectError(testing::FakeFileSystem::Operation::kWrite, ENOSPC, /*after=*/1);
  EXPECT_TRUE(files.WriteFileAtomically("/a", "x").ok());
  EXPECT_EQ(files.WriteFileAtomically("/b", "x").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(files.WriteFileAtomically("/c", "x").ok());
  EXPECT_FALSE(files.Exists("/b"));
}

}  // namespace
}  // namespace weft
