# A template: `cargo xtask dist` puts version, addresses and hashes in the places of the words in capitals.
class Unhang < Formula
  desc "Guard between MCP clients and MCP servers"
  homepage "REPOSITORY"
  version "VERSION"
  license any_of: ["MIT", "Apache-2.0"]

  ARCHIVES

  def install
    bin.install "unhang"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/unhang.bash" => "unhang"
    fish_completion.install "completions/unhang.fish"
    zsh_completion.install "completions/_unhang"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/unhang --version")
  end
end
