#include "platform/restricted_files.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

class RestrictedFilesTest : public ::testing::Test {
 protected:
  RestrictedFilesTest() {
    std::filesystem::create_directories(absl::StrCat(root_, "/allowed/inner"));
    std::filesystem::create_directories(absl::StrCat(root_, "/allowed-not"));
    EXPECT_TRUE(RealFileSystem().WriteFileAtomically(absl::StrCat(root_, "/secret"), "s").ok());
    EXPECT_TRUE(
        RealFileSystem().WriteFileAtomically(absl::StrCat(root_, "/allowed/data"), "d").ok());
  }
  ~RestrictedFilesTest() override { std::filesystem::remove_all(root_); }
  absl::StatusCode Read(const std::string& path) {
    return files_.ReadFile(absl::StrCat(root_, path)).status().code();
  }

  AllowedFolders Allowed() const {
    return {{absl::StrCat(root_, "/allowed")}, /*writable=*/true, "--checkpoint-root"};
  }

  const std::string root_ = absl::StrCat(::testing::TempDir(), "/restricted-", getpid());
  RestrictedFiles files_{RealFileSystem(), Allowed()};
};

TEST_F(RestrictedFilesTest, WhatIsBelowCanBeUsed) {
  EXPECT_EQ(*files_.ReadFile(absl::StrCat(root_, "/allowed/data")), "d");
  EXPECT_TRUE(files_.WriteFileAtomically(absl::StrCat(root_, "/allowed/inner/new"), "n").ok());
  EXPECT_EQ(Read("/allowed/missing"), absl::StatusCode::kNotFound);
}

// A stranger read a 0600 file of the worker's user, and replaced another, by naming it.
TEST_F(RestrictedFilesTest, WhatIsElsewhereIsRefusedWhetherItIsThereOrNot) {
  EXPECT_EQ(Read("/secret"), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Read("/no-such-file"), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Read("/allowed/../secret"), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Read("/allowed-not"), absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(files_.WriteFileAtomically(absl::StrCat(root_, "/secret"), "x").ok());
  EXPECT_FALSE(files_.Exists(absl::StrCat(root_, "/secret")));
  EXPECT_EQ(*RealFileSystem().ReadFile(absl::StrCat(root_, "/secret")), "s");
}

TEST_F(RestrictedFilesTest, WhatIsOutsideIsToldWithTheFoldersAndTheFlag) {
  const std::string secret = absl::StrCat(root_, "/secret");
  EXPECT_EQ(std::string(files_.ReadFile(secret).status().message()),
            absl::StrCat("'", secret, "' is not below a folder that jobs may write to on this ",
                         "worker (", std::filesystem::canonical(root_).string(),
                         "/allowed); start it with --checkpoint-root FOLDER to add one"));
  RestrictedFiles all(RealFileSystem(), {{"/"}, false, "--data-root"});
  EXPECT_EQ(*all.ReadFile(secret), "s");
  RestrictedFiles none(RealFileSystem(), {{}, false, "--data-root"});
  EXPECT_EQ(std::string(none.ReadFile(secret).status().message()),
            absl::StrCat("'", secret, "': jobs may read from no folder of this worker; ",
                         "start it with --data-root FOLDER to add one"));
}

TEST_F(RestrictedFilesTest, EachOfSeveralFoldersIsAllowed) {
  const std::string other = absl::StrCat(root_, "/allowed-not");
  RestrictedFiles files(RealFileSystem(),
                        {{absl::StrCat(root_, "/allowed"), other}, true, "--checkpoint-root"});
  EXPECT_TRUE(files.WriteFileAtomically(absl::StrCat(other, "/new"), "n").ok());
  EXPECT_EQ(*files.ReadFile(absl::StrCat(root_, "/allowed/data")), "d");
  EXPECT_FALSE(files.ReadFile(absl::StrCat(root_, "/secret")).ok());
}

TEST_F(RestrictedFilesTest, WhatIsForReadingIsNotWritten) {
  const std::string data = absl::StrCat(root_, "/allowed/data");
  RestrictedFiles files(RealFileSystem(),
                        {{absl::StrCat(root_, "/allowed")}, false, "--data-root"});
  EXPECT_EQ(*files.ReadFile(data), "d");
  EXPECT_EQ(files.WriteFileAtomically(data, "x").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(*files.ReadFile(data), "d");
}

TEST_F(RestrictedFilesTest, LinksThatLeadOutsideAreRefused) {
  std::filesystem::create_symlink(absl::StrCat(root_, "/secret"),
                                  absl::StrCat(root_, "/allowed/rank-00000.safetensors"));
  std::filesystem::create_symlink(root_, absl::StrCat(root_, "/allowed/up"));
  EXPECT_EQ(Read("/allowed/rank-00000.safetensors"), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Read("/allowed/up/secret"), absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(
      files_.WriteFileAtomically(absl::StrCat(root_, "/allowed/rank-00000.safetensors"), "x").ok());
  EXPECT_EQ(*RealFileSystem().ReadFile(absl::StrCat(root_, "/secret")), "s");
}

TEST_F(RestrictedFilesTest, NothingIsMadeEmptiedOrRemoved) {
  const std::string data = absl::StrCat(root_, "/allowed/data");
  EXPECT_EQ(files_.OpenAppend(data).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(files_.OpenEmpty(data).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(files_.RemoveFile(data).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(files_.CreateDirectories(absl::StrCat(root_, "/allowed/more")).code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(*files_.ReadFile(data), "d");
}

TEST_F(RestrictedFilesTest, ReadsUpToABound) {
  const std::string data = absl::StrCat(root_, "/allowed/data");
  EXPECT_EQ(*files_.ReadFileUpTo(data, 1), "d");
  EXPECT_EQ(files_.ReadFileUpTo(data, 0).status().code(), absl::StatusCode::kResourceExhausted);
}

// Between the look at a path and its use, somebody makes a part of it a link to elsewhere.
class LinkingFiles final : public FileSystem {
 public:
  LinkingFiles(std::string path, std::string target)
      : path_(std::move(path)), target_(std::move(target)) {}
  absl::StatusOr<std::string> ReadFileUpTo(const std::string& path,
                                           int64_t maximum_bytes) override {
    Link();
    return RealFileSystem().ReadFileUpTo(path, maximum_bytes);
  }
  absl::StatusOr<std::shared_ptr<const MappedFile>> MapFile(const std::string& path) override {
    Link();
    return RealFileSystem().MapFile(path);
  }
  absl::StatusOr<std::shared_ptr<const MappedFile>> MapFileBeneath(
      const std::string& directory, const std::string& relative_path) override {
    Link();
    return RealFileSystem().MapFileBeneath(directory, relative_path);
  }
  absl::Status WriteFileAtomically(const std::string& path, std::string_view bytes) override {
    Link();
    return RealFileSystem().WriteFileAtomically(path, bytes);
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenAppend(const std::string& path) override {
    return RealFileSystem().OpenAppend(path);
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenEmpty(const std::string& path) override {
    return RealFileSystem().OpenEmpty(path);
  }
  absl::Status CreateDirectories(const std::string& path) override {
    return RealFileSystem().CreateDirectories(path);
  }
  bool Exists(const std::string& path) override { return RealFileSystem().Exists(path); }
  absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) override {
    return RealFileSystem().ListDirectory(path);
  }
  absl::Status RemoveFile(const std::string& path) override {
    return RealFileSystem().RemoveFile(path);
  }

 private:
  void Link() {
    std::filesystem::remove_all(path_);
    std::filesystem::create_symlink(target_, path_);
  }
  const std::string path_;
  const std::string target_;
};

TEST_F(RestrictedFilesTest, AFileThatBecomesALinkMeanwhileIsRefused) {
  const std::string path = absl::StrCat(root_, "/allowed/data");
  LinkingFiles attacked(path, absl::StrCat(root_, "/secret"));
  RestrictedFiles files(attacked, Allowed());
  EXPECT_FALSE(files.ReadFile(path).ok());
  std::filesystem::remove(path);
  EXPECT_FALSE(files.MapFile(path).ok());
  EXPECT_EQ(*RealFileSystem().ReadFile(absl::StrCat(root_, "/secret")), "s");
}

TEST_F(RestrictedFilesTest, AFolderThatBecomesALinkMeanwhileIsRefused) {
  const std::string folder = absl::StrCat(root_, "/allowed/inner");
  LinkingFiles attacked(folder, root_);
  RestrictedFiles files(attacked, Allowed());
  EXPECT_FALSE(files.ReadFile(absl::StrCat(folder, "/secret")).ok());
  std::filesystem::remove(folder);
  std::filesystem::create_directory(folder);
  EXPECT_FALSE(files.MapFileBeneath(folder, "secret").ok());
}

TEST_F(RestrictedFilesTest, APathFromAFolderStaysInIt) {
  const std::string folder = absl::StrCat(root_, "/allowed/inner");
  ASSERT_TRUE(RealFileSystem().WriteFileAtomically(absl::StrCat(folder, "/own"), "o").ok());
  EXPECT_TRUE(files_.MapFileBeneath(folder, "own").ok());
  EXPECT_EQ(files_.MapFileBeneath(folder, "none").status().code(), absl::StatusCode::kNotFound);
  for (const std::string& path :
       {std::string("../data"), absl::StrCat(root_, "/allowed/data"), std::string()}) {
    EXPECT_EQ(files_.MapFileBeneath(folder, path).status().code(),
              absl::StatusCode::kInvalidArgument)
        << path;
  }
}

// A folder and a link to elsewhere change places all the time.
TEST_F(RestrictedFilesTest, NoWriteGoesThroughALinkThatComesAndGoes) {
  const std::string folder = absl::StrCat(root_, "/allowed/inner");
  const std::string link = absl::StrCat(root_, "/allowed/other");
  std::filesystem::create_directory_symlink(root_, link);
  std::atomic<bool> done = false;
  std::thread attacker([&] {
    while (!done) {
      EXPECT_EQ(renameat2(AT_FDCWD, folder.c_str(), AT_FDCWD, link.c_str(), RENAME_EXCHANGE), 0);
    }
  });
  int written = 0;
  for (int i = 0; i < 1000; ++i) {
    written += files_.WriteFileAtomically(absl::StrCat(folder, "/secret"), "forged").ok();
  }
  done = true;
  attacker.join();
  EXPECT_GT(written, 0);
  EXPECT_EQ(*RealFileSystem().ReadFile(absl::StrCat(root_, "/secret")), "s");
}

}  // namespace
}  // namespace weft
