// The cache of compiled texts, in folders of this machine and in one that fails.
#include "ops/kernels/cuda/fusion/kernel_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/log.h"
#include "platform/private_folder.h"

namespace weft::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class KernelCacheTest : public ::testing::Test {
 protected:
  KernelCacheTest() {
    std::filesystem::remove_all(path_);
    SetLogLevel(LogLevel::kWarning);
    SetLogSink([this](const std::string& line) { warnings_.push_back(line); });
  }
  ~KernelCacheTest() override {
    SetLogSink(nullptr);
    SetLogLevel(LogLevel::kError);
    std::filesystem::remove_all(path_);
  }

  KernelCache::Opener Here() const {
    return [this] { return OpenPrivateFolder(path_); };
  }
  // What a process that starts now finds.
  std::optional<std::string> FoundLater(const std::string& key) const {
    return KernelCache(Here()).Find(key);
  }
  std::string FileOf(const std::string& key) const {
    return absl::StrCat(path_, "/", KernelCache::FileNameOf(key));
  }
  static std::string Text(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void Overwrite(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  }
  void SetUsed(const std::string& path, int seconds) const {
    const struct timespec times[2] = {{seconds, 0}, {seconds, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }

  const std::string path_ = absl::StrCat(::testing::TempDir(), "/kernel-cache-", getpid());
  std::vector<std::string> warnings_;
};

TEST(KernelCacheFolderTest, FollowsTheEnvironment) {
  std::map<std::string, std::string> variables = {{"HOME", "/home/ada"}};
  const auto folder = [&] {
    return KernelCacheFolder([&](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  };
  EXPECT_EQ(folder(), "/home/ada/.cache/weft/kernels");
  variables["XDG_CACHE_HOME"] = "relative";
  EXPECT_EQ(folder(), "/home/ada/.cache/weft/kernels");
  variables["XDG_CACHE_HOME"] = "/cache";
  EXPECT_EQ(folder(), "/cache/weft/kernels");
  variables["WEFT_KERNEL_CACHE"] = "kernels";
  EXPECT_EQ(folder(), "kernels");
  variables["WEFT_KERNEL_CACHE"] = "";
  EXPECT_EQ(folder(), "");
  variables.clear();
  EXPECT_EQ(folder(), "");
}

TEST_F(KernelCacheTest, KeepsCodeForLaterProcesses) {
  const std::string code("a\0b", 3);
  KernelCache cache(Here());
  EXPECT_EQ(cache.Find("key"), std::nullopt);
  cache.Store("key", code);
  cache.Store("other key", "");
  EXPECT_EQ(cache.Find("key"), code);
  EXPECT_EQ(FoundLater("key"), code);
  EXPECT_EQ(FoundLater("other key"), "");
  EXPECT_EQ(FoundLater("third key"), std::nullopt);
  cache.Store("key", "new");
  EXPECT_EQ(FoundLater("key"), "new");
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(KernelCacheTest, EveryDamagedByteIsSeen) {
  KernelCache(Here()).Store("key", "code");
  const std::string whole = Text(FileOf("key"));
  ASSERT_EQ(whole.size(), 32 + 3 + 4);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    Overwrite(FileOf("key"), damaged);
    EXPECT_EQ(FoundLater("key"), std::nullopt) << "byte " << i;
    Overwrite(FileOf("key"), whole.substr(0, i));
    EXPECT_EQ(FoundLater("key"), std::nullopt) << i << " bytes";
  }
  Overwrite(FileOf("key"), whole + "x");
  EXPECT_EQ(FoundLater("key"), std::nullopt);
  KernelCache(Here()).Store("key", "code");
  EXPECT_EQ(FoundLater("key"), "code");
}

TEST_F(KernelCacheTest, TheFileOfAnotherKeyIsNotTaken) {
  KernelCache cache(Here());
  cache.Store("key", "code");
  cache.Store("yek", "other code");
  // As if both keys had one checksum.
  std::filesystem::copy_file(FileOf("yek"), FileOf("key"),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(FoundLater("key"), std::nullopt);
  EXPECT_EQ(FoundLater("yek"), "other code");
}

TEST_F(KernelCacheTest, CodeThatOthersCanHaveWrittenIsNotLoaded) {
  KernelCache(Here()).Store("key", "code");
  ASSERT_EQ(chmod(FileOf("key").c_str(), 0666), 0);
  EXPECT_EQ(FoundLater("key"), std::nullopt);
  EXPECT_EQ(warnings_.size(), 1);
  KernelCache(Here()).Store("key", "code");
  EXPECT_EQ(FoundLater("key"), "code");
  ASSERT_EQ(chmod(path_.c_str(), 0777), 0);
  EXPECT_EQ(FoundLater("key"), std::nullopt);
}

TEST_F(KernelCacheTest, WhatWasNotUsedForLongestGoesFirst) {
  const std::string code(100, 'c');
  const int64_t file = 32 + 1 + 100;
  KernelCache cache(Here(), 3 * file);
  for (const char* const key : {"a", "b", "c"}) cache.Store(key, code);
  Overwrite(path_ + "/notes.txt", std::string(5000, 'x'));
  SetUsed(path_ + "/notes.txt", 1);
  SetUsed(FileOf("a"), 1000);
  SetUsed(FileOf("b"), 2000);
  SetUsed(FileOf("c"), 3000);
  EXPECT_TRUE(cache.Find("a").has_value());  // is used now
  cache.Store("d", code);
  EXPECT_FALSE(cache.Find("b").has_value());
  for (const char* const key : {"a", "c", "d"}) EXPECT_TRUE(cache.Find(key).has_value()) << key;
  EXPECT_TRUE(std::filesystem::exists(path_ + "/notes.txt"));
  // What an ended process left half written counts, and goes.
  Overwrite(path_ + "/.weft-1-1.tmp", std::string(50, 'x'));
  SetUsed(path_ + "/.weft-1-1.tmp", 1);
  cache.Store("d", code);
  EXPECT_FALSE(std::filesystem::exists(path_ + "/.weft-1-1.tmp"));
  for (const char* const key : {"a", "c", "d"}) EXPECT_TRUE(cache.Find(key).has_value()) << key;
  // One that never fits is not kept.
  cache.Store("e", std::string(3 * file, 'c'));
  EXPECT_FALSE(cache.Find("e").has_value());
  EXPECT_TRUE(cache.Find("a").has_value());
}

TEST_F(KernelCacheTest, AFolderThatCannotBeMadeIsOneWarning) {
  Overwrite(path_, "a file");
  KernelCache cache(Here());
  for (int i = 0; i < 3; ++i) {
    cache.Store("key", "code");
    EXPECT_EQ(cache.Find("key"), std::nullopt);
  }
  ASSERT_EQ(warnings_.size(), 1);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("compiled kernels are not kept on the disk")));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr(path_)));
}

// Reads what is there; the disk is full.
class FullFolder final : public PrivateFolder {
 public:
  absl::StatusOr<std::string> Read(const std::string&, int64_t) override {
    return absl::NotFoundError("none");
  }
  absl::Status Write(const std::string&, std::string_view) override {
    return absl::ResourceExhaustedError("the disk is full");
  }
  absl::Status MarkUsed(const std::string&) override { return absl::NotFoundError("none"); }
  absl::StatusOr<std::vector<Entry>> List() override { return std::vector<Entry>(); }
  absl::Status Remove(const std::string&) override { return absl::NotFoundError("none"); }
};

TEST_F(KernelCacheTest, AFullDiskIsOneWarning) {
  KernelCache cache([] { return std::make_unique<FullFolder>(); });
  cache.Store("key", "code");
  cache.Store("other key", "code");
  EXPECT_EQ(cache.Find("key"), std::nullopt);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("the disk is full")));
}

TEST_F(KernelCacheTest, SeveralUseOneFolderAtOnce) {
  // Small enough that each removes files of the others.
  const std::string code(1000, 'c');
  const auto use = [&](int seed) {
    KernelCache cache(Here(), 5000);
    for (int i = 0; i < 200; ++i) {
      const std::string key = absl::StrCat("key ", (i * 7 + seed) % 10);
      EXPECT_EQ(cache.Find(key).value_or(key + code), key + code);
      cache.Store(key, key + code);
    }
  };
  std::vector<std::thread> users;
  for (int seed = 0; seed < 3; ++seed) users.emplace_back(use, seed);
  for (std::thread& user : users) user.join();
  KernelCache cache(Here(), 5000);
  cache.Store("last", code);
  EXPECT_EQ(cache.Find("last"), code);
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path_)) bytes += entry.file_size();
  EXPECT_LE(bytes, 5000);
}

}  // namespace
}  // namespace weft::cuda
