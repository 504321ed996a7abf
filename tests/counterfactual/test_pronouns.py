"""The benchmark's own scope: he, she, him, her, his, hers, himself, herself."""

from __future__ import annotations

import pytest

from biasbios_mlflow.counterfactual import changed_words, swap_gender
from tests.counterfactual.cases import SwapCase, swap_cases


@pytest.mark.parametrize("case", swap_cases(), ids=lambda case: case.why.replace(" ", "-"))
def test_given_cases(case: SwapCase):
    assert swap_gender(case.text) == case.swapped


# Beside each given case, others of its kind; the swap goes both ways where both words are unique.
KINDS = {
    "first and last word": [
        ("She", "He"),
        ("he", "she"),
        ("Herself, then", "Himself, then"),
        ("by him", "by her"),
    ],
    "object at an end": [
        ("Everybody liked her.", "Everybody liked him."),
        ("Is that her?", "Is that him?"),
        ("They hired her; she stayed.", "They hired him; he stayed."),
        ("(They all know her)", "(They all know him)"),
        ("We miss her…", "We miss him…"),
        ("“We all want to be like her”.", "“We all want to be like him”."),
        ("It works for her.", "It works for him."),
    ],
    "object before a preposition": [
        ("Write to her at the clinic.", "Write to him at the clinic."),
        ("Colleagues describe her as tireless.", "Colleagues describe him as tireless."),
        ("A grant brought her to Turin.", "A grant brought him to Turin."),
        ("People come to her with questions.", "People come to him with questions."),
        ("The city honored her for her work.", "The city honored him for his work."),
    ],
    "object before an article or a possessive": [
        ("Readers voted her the best poet.", "Readers voted him the best poet."),
        ("The film won her an award.", "The film won him an award."),
        ("Her aunt taught her the cello.", "His aunt taught him the cello."),
        ("They gave her their trust.", "They gave him their trust."),
    ],
    "object before a bare verb": [
        ("Music helps her relax.", "Music helps him relax."),
        ("Hear her sing!", "Hear him sing!"),
        ("They made her wait.", "They made him wait."),
        ("Hear her speak on Friday.", "Hear him speak on Friday."),
    ],
    "object before an adjective": [
        ("The debut made her famous.", "The debut made him famous."),
        ("Running keeps her healthy.", "Running keeps him healthy."),
        ("Friends found her asleep.", "Friends found him asleep."),
    ],
    "object before a clause": [
        ("I wrote to her prior to the move.", "I wrote to him prior to the move."),
        ("I told her that we agree.", "I told him that we agree."),
        ("We asked her how it began.", "We asked him how it began."),
        ("Clients love her because she is kind.", "Clients love him because he is kind."),
    ],
    "object before an adverb of time or place": [
        ("Call her today.", "Call him today."),
        ("You can follow her online.", "You can follow him online."),
        ("We saw her yesterday.", "We saw him yesterday."),
        ("We visit her often.", "We visit him often."),
    ],
    "object before an amount": [
        ("It cost her $40 a month.", "It cost him $40 a month."),
        ("They paid her €200.", "They paid him €200."),
        ("It took her three years to finish.", "It took him three years to finish."),
    ],
    "possessive before a noun": [
        ("Call her office.", "Call his office."),
        ("In her practice, she sees children.", "In his practice, he sees children."),
        ("She earned her doctorate in Kyoto.", "He earned his doctorate in Kyoto."),
        ("Her husband and her two dogs", "His husband and his two dogs"),
        ("She lives with her family in Graz.", "He lives with his family in Graz."),
    ],
    "possessive after a verb that also takes a person": [
        ("She earned her license in 2004.", "He earned his license in 2004."),
        ("She taught her students patience.", "He taught his students patience."),
        ("She left her practice to write.", "He left his practice to write."),
        ("She shows her paintings in Porto.", "He shows his paintings in Porto."),
        ("She brings her experience to the team.", "He brings his experience to the team."),
        ("She joined her father's firm.", "He joined his father's firm."),
    ],
    "possessive before an adjective": [
        ("Her latest book is out.", "His latest book is out."),
        ("She enjoys her busy practice.", "He enjoys his busy practice."),
        ("She is known for her very dry wit.", "He is known for his very dry wit."),
        ("She credits her well-known patience.", "He credits his well-known patience."),
    ],
    "possessive before a number, a decade, an abbreviation": [
        ("Her three children sing.", "His three children sing."),
        ("In her 30s she moved.", "In his 30s he moved."),
        ("She received her Ph.D. from Ghent.", "He received his Ph.D. from Ghent."),
        ("She did her B.A. and M.A. in Pisa.", "He did his B.A. and M.A. in Pisa."),
        ("She took her 2010 campaign north.", "He took his 2010 campaign north."),
    ],
    "possessive before own and other": [
        ("She runs her own studio.", "He runs his own studio."),
        ("Her other love is chess.", "His other love is chess."),
        ("Her first patient came late.", "His first patient came late."),
    ],
    "both in one sentence": [
        ("They told her that her essay moved her.", "They told him that his essay moved him."),
        ("They gave her her degree.", "They gave him his degree."),
    ],
    "coordination": [
        ("Ask him or her about it.", "Ask her or him about it."),
        ("Each student brings his or her lunch.", "Each student brings her or his lunch."),
        ("Each doctor and his or her patients", "Each doctor and her or his patients"),
        ("Give it to her or him.", "Give it to him or her."),
        ("her & him", "him & her"),
        ("Follow her @aro.", "Follow him @aro."),
    ],
    "independent possessive": [
        ("The studio is his.", "The studio is hers."),
        ("This victory was his alone.", "This victory was hers alone."),
        ("Is it his?", "Is it hers?"),
        ("His was a long career.", "Hers was a long career."),
        ("A colleague of his, Aro", "A colleague of hers, Aro"),
        ("That voice of his!", "That voice of hers!"),
        ("The clinic became his in 1999.", "The clinic became hers in 1999."),
        ("The choice was his, and it was hard.", "The choice was hers, and it was hard."),
        ("Her view is like his.", "His view is like hers."),
        ("Any novel of his sells well.", "Any novel of hers sells well."),
        ("Their essays and his appear in June.", "Their essays and hers appear in June."),
        ("His painted easily.", "Hers painted easily."),
        ("We knew that his sold slowly.", "We knew that hers sold slowly."),
        ("Critics like essays, his especially.", "Critics like essays, hers especially."),
        ("His’ll do.", "Hers’ll do."),
        ("A student of his founded the lab.", "A student of hers founded the lab."),
        ("This book of his sold out.", "This book of hers sold out."),
        ("A poem of his appeared in June.", "A poem of hers appeared in June."),
        ("They say that his it’s not.", "They say that hers it’s not."),
        ("hers", "his"),
    ],
    "his before its noun": [
        ("His work is known.", "Her work is known."),
        ("In his will he left it all.", "In her will she left it all."),
        ("All of his patients agree.", "All of her patients agree."),
        ("A member of his staff called.", "A member of her staff called."),
        ("That is his family.", "That is her family."),
        ("He left it to his Emily.", "She left it to her Emily."),
        ("His speed: the best.", "Her speed: the best."),
        ("He said that his acclaimed essay won.", "She said that her acclaimed essay won."),
        ("His critically acclaimed essay", "Her critically acclaimed essay"),
        ("He doubled his SAT score.", "She doubled her SAT score."),
        ("His related interests are maps.", "Her related interests are maps."),
        ("His lay audience enjoys it.", "Her lay audience enjoys it."),
        ("His felt hats sell.", "Her felt hats sell."),
        ("He gave his all.", "She gave her all."),
        ("Of his published works, two won.", "Of her published works, two won."),
    ],
    "her before what no noun phrase begins with": [
        ("What I heard from her I'm using.", "What I heard from him I'm using."),
        ("All who met her became friends.", "All who met him became friends."),
        ("They took her home early.", "They took him home early."),
        ("They sold her home early.", "They sold his home early."),
        ("She doubled her SAT score.", "He doubled his SAT score."),
    ],
    "her behind some verbs": [
        ("See her full bio.", "See his full bio."),
        ("You can find her hiking.", "You can find him hiking."),
        ("You can find her writing on many sites.", "You can find his writing on many sites."),
        ("Find her office on Main Street.", "Find his office on Main Street."),
        ("Teaching brings her joy.", "Teaching brings him joy."),
        ("Her work earned her numerous awards.", "His work earned him numerous awards."),
        ("Her book won her critical acclaim.", "His book won him critical acclaim."),
        ("It earned her international recognition.", "It earned him international recognition."),
        ("She earned her law degree.", "He earned his law degree."),
        ("She won her first award.", "He won his first award."),
        ("The books that inspired her most sell.", "The books that inspired him most sell."),
        ("Her most recent book", "His most recent book"),
        ("What interests her most is law.", "What interests him most is law."),
        ("Her faith made her stronger.", "His faith made him stronger."),
        ("Two dogs keep her happy.", "Two dogs keep him happy."),
        ("Her training helps her understand pain.", "His training helps him understand pain."),
        ("It helped her learn Spanish.", "It helped him learn Spanish."),
        ("It helps her students learn.", "It helps his students learn."),
        ("She made her debut.", "He made his debut."),
        ("She found her calling.", "He found his calling."),
        ("She found her calling in law.", "He found his calling in law."),
        ("She gave her life to law.", "He gave his life to law."),
        ("She gave her name.", "He gave his name."),
        ("She left her job.", "He left his job."),
        ("She kept her promise.", "He kept his promise."),
        ("She brings her strength to work.", "He brings his strength to work."),
        ("He brought her many gifts.", "She brought him many gifts."),
        ("She offered her full support.", "He offered his full support."),
        ("He gave her full credit for it.", "She gave him full credit for it."),
        ("Her current work", "His current work"),
        ("View her complete profile.", "View his complete profile."),
        ("She received her training in Rome.", "He received his training in Rome."),
        ("She earned her MSW degree.", "He earned his MSW degree."),
        ("They named her Teacher of the Year.", "They named him Teacher of the Year."),
        ("Her peers elected her president.", "His peers elected him president."),
        ("They named her company a leader.", "They named his company a leader."),
        ("Patients find her warm and caring.", "Patients find him warm and caring."),
        ("Patients find her office warm.", "Patients find his office warm."),
        ("Students rate her highly.", "Students rate him highly."),
        ("She praised her family.", "He praised his family."),
        ("Her mentor helped her land a job.", "His mentor helped him land a job."),
        ("She helps her patients heal.", "He helps his patients heal."),
        ("Let her work speak for itself.", "Let his work speak for itself."),
        ("Her job keeps her traveling.", "His job keeps him traveling."),
        ("She found her missing notes.", "He found his missing notes."),
        ("She brings her many years of work.", "He brings his many years of work."),
        ("Given her many years of work", "Given his many years of work"),
        ("She brings her 20 years of work.", "He brings his 20 years of work."),
        ("It took her many years.", "It took him many years."),
        ("It took her 20 years.", "It took him 20 years."),
        ("They gave her 20 years.", "They gave him 20 years."),
        ("You will find her reading.", "You will find him reading."),
        ("You can find her cooking with us.", "You can find him cooking with us."),
        ("She left her nursing career.", "He left his nursing career."),
        ("She kept her consulting firm.", "He kept his consulting firm."),
        ("She gives her undivided attention.", "He gives his undivided attention."),
    ],
    "capitals": [
        ("SHE LOVES HER JOB.", "HE LOVES HIS JOB."),
        ("CALL HER TODAY", "CALL HIM TODAY"),
        ("Thank Her", "Thank Him"),
        ("HIMSELF", "HERSELF"),
    ],
    "apostrophes": [
        ("She'd say he’s late.", "He'd say she’s late."),
        ("“She’ll lead,” he said.", "“He’ll lead,” she said."),
        ("'Her voice' is a song.", "'His voice' is a song."),
    ],
    "slashes": [
        ("he/she/they", "she/he/they"),
        ("they/she", "they/he"),
        ("she/they", "he/they"),
        ("his/hers", "hers/his"),
        ("Ask him/her today.", "Ask her/him today."),
        ("her/his work", "his/her work"),
        ("He/She", "She/He"),
        ("his / her work", "her / his work"),
        ("her/himself", "him/herself"),
        ("S/he and s/he", "S/he and s/he"),
        ("(S)he and (s)he", "(S)he and (s)he"),
    ],
    "pronoun lists": [
        ("Pronouns: she/her/hers", "Pronouns: he/him/his"),
        ("Pronouns: he/him/his", "Pronouns: she/her/hers"),
        ("(she/her)", "(he/him)"),
        ("(he/him)", "(she/her)"),
        ("She/Her/Hers", "He/Him/His"),
        ("he/him/his/himself", "she/her/hers/herself"),
        ("(she, her, hers)", "(he, him, his)"),
        ("(he, him, his)", "(she, her, hers)"),
        ("(she / her / hers)", "(he / him / his)"),
        ("(he / him / his)", "(she / her / hers)"),
        ("(she, her)", "(he, him)"),
    ],
    "no pronoun of its own": [
        ("her.example and her@mail.example", "her.example and her@mail.example"),
        ("first.her@mail.example", "first.her@mail.example"),
        ("@her and #he and #SheLeads", "@her and #he and #SheLeads"),
        ("https://host.example/his/her?she=he&him", "https://host.example/his/her?she=he&him"),
        ("www.host.example/she", "www.host.example/she"),
        ("her-cv.pdf, his_cv.pdf, C:\\him\\she", "her-cv.pdf, his_cv.pdf, C:\\him\\she"),
        ("See her.txt", "See her.txt"),
        ("docs/her/notes.md", "docs/her/notes.md"),
        ("a she-wolf, the he-man", "a she-wolf, the he-man"),
        ("his-and-hers towels", "his-and-hers towels"),
        ("the, shed, hero, sheer, this, Heron, hiss", "the, shed, hero, sheer, this, Heron, hiss"),
        ("he\u0301 and e\u0301he", "he\u0301 and e\u0301he"),
        ("hEr sHe", "hEr sHe"),
        ("Dr. He, Mr. He and Prof. He teach.", "Dr. He, Mr. He and Prof. He teach."),
    ],
    "typesetting": [
        ("He retired in 2010.She did not.", "She retired in 2010.He did not."),
        ("Well...he said", "Well...she said"),
        ("The poet—her voice hoarse—read.", "The poet—his voice hoarse—read."),
        ("*She* and _x_ and [he]", "*He* and _x_ and [she]"),
        ("her\n\nShe", "him\n\nHe"),
        ("Her\nhusband", "His\nhusband"),
        ("\u00a0she\u2003he\u00a0", "\u00a0he\u2003she\u00a0"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "swapped"),
    [
        pytest.param(*pair, id=kind.replace(" ", "-"))
        for kind, pairs in KINDS.items()
        for pair in pairs
    ],
)
def test_own_cases(text: str, swapped: str):
    assert swap_gender(text) == swapped


def test_changed_words_are_the_swap_itself():
    text = "His wife said she admires him; the prize is his. S/he, she-wolf."
    assert changed_words(text) == [("His", "Her"), ("she", "he"), ("him", "her"), ("his", "hers")]
    assert changed_words("No one here.") == []
